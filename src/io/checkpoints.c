#include "core/inner.h"
#include "tensor/inner.h"
#include "comm/inner.h"
#include "layers/layers.h"
#include "optim/inner.h"
#include "io/inner.h"

#ifndef TN_NO_TRAINING
/* ---- checkpoints -------------------------------------------------------- >>io-checkpoints-impl
   A safetensors file: values NAME, moments optim.m.NAME and optim.v.NAME where they exist, optim.scalars and optim.clock,
   and as its last 8 bytes optim.checksum, of all bytes before it. Integers and the desc are notes, in decimal. Increase
   TNI_CHECKPOINT_FORMAT when you change anything a later step depends on. */

#define TNI_CHECKPOINT_FORMAT "2"
#define TNI_CHECKPOINT_UNSEALED "1"             /* as earlier versions wrote it, which knew no checksum */
#define TNI_MOST_STEPS ((uint64_t)1 << 53)      /* larger counts are not exact as doubles, and may overflow */

static const char *const tni_optim_names[] = {"adamw", "sgd", "muon"};
static const char *const tni_moment_prefix[] = {"optim.m.", "optim.v."};

typedef struct tni_optim_number { const char *name; double value; } tni_optim_number;
enum { TNI_OPTIM_NUMBERS = 19 };

static void tni_optim_numbers(const tn_optim_desc *d, tni_optim_number n[TNI_OPTIM_NUMBERS])
{
    int k = 0;
#define TNI_NUMBER(field) n[k].name = "tensornet." #field; n[k++].value = (double)d->field;
    TNI_NUMBER(lr) TNI_NUMBER(beta1) TNI_NUMBER(beta2) TNI_NUMBER(eps) TNI_NUMBER(weight_decay) TNI_NUMBER(momentum)
    TNI_NUMBER(nesterov) TNI_NUMBER(clip_norm) TNI_NUMBER(schedule.kind) TNI_NUMBER(schedule.warmup)
    TNI_NUMBER(schedule.total) TNI_NUMBER(schedule.floor) TNI_NUMBER(schedule.decay) TNI_NUMBER(schedule.one_minus_sqrt)
    TNI_NUMBER(adam_lr) TNI_NUMBER(muon_scale) TNI_NUMBER(newton_schulz) TNI_NUMBER(momentum_warmup)
    TNI_NUMBER(momentum_start)
#undef TNI_NUMBER
}

/* Names and values of a file's header, one after the other in one block of memory. */
typedef struct tni_names { char *text; size_t bytes, used; } tni_names;

static const char *tni_names_write(tni_names *p, const char *first, const char *second)
{
    char *s = p->text + p->used;
    p->used += tni_print(s, p->bytes - p->used, "%s%s", first, second) + 1;
    return s;
}

static const char *tni_names_natural(tni_names *p, uint64_t n)
{
    char *s = p->text + p->used;
    p->used += tni_print(s, p->bytes - p->used, "%llu", (unsigned long long)n) + 1;
    return s;
}

typedef struct tni_checkpoint {
    tn_optim  *optim;
    tni_names  names;
    tn_named_tensor  *named;
    tn_metadata   *notes;
    int64_t    tensors, note_count;
    int64_t   *moment;                  /* of each tensor: 2 i + k for moment k of parameter i, or -1                        */
    uint8_t   *host;                    /* with shared moments: TNI_CHUNK elements, and the same as the file has them    */
    tn_tensor *piece;                   /* TNI_CHUNK elements of the backend, for a carrier that takes no other memory   */
    bool       asked, began, ended;     /* processes have reported whether they can begin; all can; all have sent */
    tn_status  sent;                    /* the first error of what they send                                             */
} tni_checkpoint;

/* Such a name is refused, because the file uses it for the optimiser's own tensors. */
static tn_status tni_checkpoint_usable(const tn_optim *o)
{
    if (!o) return TN_ERR_ARG;
    if (!o->of.params) return tni_fail(o->owned.ctx, TN_ERR_ARG, "checkpoint: the optimiser's parameters were destroyed");
    for (int64_t i = 0; i < o->of.params->count; i++)
        if (strncmp(o->of.params->item[i]->name, "optim.", 6) == 0)
            return tni_fail(o->owned.ctx, TN_ERR_ARG, "checkpoint: parameter %s: the prefix optim. is reserved",
                            o->of.params->item[i]->name);
    return tn_ctx_sync(o->owned.ctx);
}

static void tni_checkpoint_tensor(tni_checkpoint *c, const char *name, const tn_tensor *t, int64_t moment)
{
    c->moment[c->tensors] = moment;
    c->named[c->tensors].name = name;
    c->named[c->tensors++].tensor = t;
}

static void tni_checkpoint_note(tni_checkpoint *c, const char *key, const char *value)
{
    c->notes[c->note_count].key = key;
    c->notes[c->note_count++].value = value;
}

/* Moment k of parameter i, or NULL. Where processes share moments it has the shape of the value, and this may be all that is
   here of it. */
static const tn_tensor *tni_checkpoint_moment(const tn_optim *o, int64_t i, int k)
{
    if (i >= o->states || !o->state[i].made) return NULL;
    if (!tni_optim_shares(o)) return o->state[i].m[k];
    return k < tni_rule_wants(o, o->state[i].rule) ? o->of.params->item[i]->value : NULL;
}

/* Whether a carrier has no message for one process alone. */
static bool tni_comm_spreads(const tn_comm *k) { return k->device || !k->exchange; }

/* Bytes of the host from one process to another, which both call it; for a carrier with `exchange` that is not of devices. */
static tn_status tni_link_pass(tni_link *l, int from, int to, void *data, size_t bytes)
{
    if (l->why[0]) return TN_ERR_COMM;
    if (l->comm->rank == from) return tni_link_failed(l, tni_link_exchange(l, to, data, bytes, -1, NULL, 0));
    return tni_link_failed(l, tni_link_exchange(l, -1, NULL, 0, from, data, bytes));
}

/* The elements of a vector of process `from` to host memory of the first, `host`, where each process has memory for them. All
   call it. A carrier that cannot send to one process broadcasts them, through `piece`, memory of the backend. After an error of
   one process, except of the carrier's, the others get what is there. */
static tn_status tni_comm_to_first(tn_ctx *ctx, int from, const tn_view *v, tn_tensor *piece, void *host)
{
    const int    rank = ctx->desc.comm->rank;
    const size_t bytes = (size_t)v->shape[0] * tni_dtype_size(v->dtype);
    tn_status    s = TN_OK, t = TN_OK;
    if (from > 0 && tni_comm_spreads(ctx->desc.comm)) {
        tn_call c = tni_call(TN_KERNEL_COPY, "");
        c.in[c.n_in++] = *v;
        c.out[c.n_out++] = tni_span_view(piece, 0, v->shape[0]);
        if (rank == from) s = tni_run(ctx, &c);
        t = tni_comm_run(ctx, TNI_BROADCAST, piece->data, v->shape[0], v->dtype, from);
        if (t == TN_OK && rank == 0) t = tni_to_host(ctx, host, piece->data, bytes);
    } else {
        if (rank == from) s = tni_to_host(ctx, host, v->data, bytes);
        if (from > 0 && (rank == 0 || rank == from)) t = tni_link_pass(&ctx->link, from, 0, host, bytes);
        if (t != TN_OK) return tni_comm_failed(ctx, t);
    }
    if (t != TN_OK) s = t;
    return s == TN_OK || ctx->status != TN_OK ? s : tni_backend_fail(ctx, s, "comm");
}

/* Moment k of parameter i, in pieces: each process that has a part of it sends that to the first, which writes (w). */
static void tni_checkpoint_send(tni_checkpoint *c, int64_t i, int k, tni_writer *w)
{
    tn_optim      *o = c->optim;
    const tn_dtype dtype = o->scalars->dtype;
    uint8_t       *out = c->host + (size_t)TNI_CHUNK * 8;
    const int      rank = tn_comm_rank(o->owned.ctx);
    for (int r = 0; r < tn_comm_size(o->owned.ctx); r++) {
        const tni_span part = tni_optim_part(o, i, r);
        int64_t        n;
        for (int64_t done = 0; done < part.count && !o->owned.ctx->link.why[0]; done += n) {
            n = tni_min(TNI_CHUNK, part.count - done);
            tn_view v = TNI_ZERO;
            v.dtype = dtype;
            v.rank = 1;
            v.shape[0] = n;
            if (r == rank) v = tni_span_view(o->state[i].m[k], done, n);
            tn_status s = tni_comm_to_first(o->owned.ctx, r, &v, c->piece, c->host);
            if (c->sent == TN_OK || o->owned.ctx->link.why[0]) c->sent = s;
            if (!w) continue;
            if (w->status == TN_OK) w->status = c->sent;
            tni_to_file(c->host, dtype, out, dtype, n);
            tni_put(w, out, (size_t)n * tni_dtype_size(dtype));
        }
    }
}

static tn_status tni_checkpoint_begin(void *user, tn_status s)
{
    tni_checkpoint *c = (tni_checkpoint *)user;
    c->asked = true;
    s = tni_optim_agree(c->optim, TNI_MEET_CHECKPOINT, s);
    c->began = s == TN_OK;
    return s;
}

/* All have sent what they have, and the first has written it: else its file does not replace an older one. */
static tn_status tni_checkpoint_end(void *user, tn_status s)
{
    tni_checkpoint *c = (tni_checkpoint *)user;
    s = tni_optim_agree(c->optim, TNI_MEET_CHECKPOINT, s);
    c->ended = s == TN_OK;
    return s;
}

static bool tni_checkpoint_put(void *user, tni_writer *w, int64_t number)
{
    tni_checkpoint *c = (tni_checkpoint *)user;
    const int64_t   moment = c->moment[number];
    if (moment >= 0) tni_checkpoint_send(c, moment / 2, (int)(moment % 2), w);
    return moment >= 0;
}

static void tni_checkpoint_list(tni_checkpoint *c)
{
    const tn_optim  *o = c->optim;
    tn_ctx          *ctx = o->owned.ctx;
    tni_optim_number n[TNI_OPTIM_NUMBERS];
    for (int64_t i = 0; i < o->of.params->count; i++) {
        const tn_param *p = o->of.params->item[i];
        tni_checkpoint_tensor(c, p->name, p->value, -1);
        for (int k = 0; k < 2; k++)
            if (tni_checkpoint_moment(o, i, k))
                tni_checkpoint_tensor(c, tni_names_write(&c->names, tni_moment_prefix[k], p->name),
                                      tni_checkpoint_moment(o, i, k), 2 * i + k);
        if (tni_checkpoint_moment(o, i, 0) && o->state[i].born > 0)
            tni_checkpoint_note(c, tni_names_write(&c->names, "tensornet.born.", p->name),
                                tni_names_natural(&c->names, (uint64_t)o->state[i].born));
    }
    tni_checkpoint_tensor(c, "optim.scalars", o->scalars, -1);
    tni_checkpoint_tensor(c, "optim.clock", ctx->clock, -1);
    tni_checkpoint_note(c, "tensornet.checkpoint", TNI_CHECKPOINT_FORMAT);
    tni_checkpoint_note(c, "tensornet.version", tn_version());
    tni_checkpoint_note(c, "tensornet.optim", tni_optim_names[o->desc.kind]);
    tni_checkpoint_note(c, "tensornet.steps", tni_names_natural(&c->names, (uint64_t)o->steps));
    tni_checkpoint_note(c, "tensornet.seed", tni_names_natural(&c->names, ctx->desc.seed));
    tni_checkpoint_note(c, "tensornet.calls", tni_names_natural(&c->names, (uint64_t)ctx->calls));
    tni_optim_numbers(&o->desc, n);
    for (int k = 0; k < TNI_OPTIM_NUMBERS; k++) {
        char number[32];
        tni_exact_text(number, n[k].value);
        tni_checkpoint_note(c, n[k].name, tni_names_write(&c->names, number, ""));
    }
}

static tn_status tni_checkpoint_notes(tn_ctx *ctx, const tn_metadata *notes, int64_t count)
{
    if (count < 0 || (count > 0 && !notes) || count > INT32_MAX)
        return tni_fail(ctx, TN_ERR_ARG, "checkpoint: %lld notes at %s, expected a list of 0 or more", (long long)count,
                        notes ? "an address" : "NULL");
    for (int64_t i = 0; i < count; i++)
        if (notes[i].key && strncmp(notes[i].key, "tensornet.", 10) == 0)
            return tni_fail(ctx, TN_ERR_ARG, "checkpoint: note %s: the prefix tensornet. is reserved",
                            tni_quote(notes[i].key).s);
    return TN_OK;
}

TNI_COLD static tn_status tni_checkpoint_save(tni_checkpoint *c, tn_sink sink, const tn_metadata *notes, int64_t note_count)
{
    const tn_optim *o = c->optim;
    tn_ctx         *ctx = o->owned.ctx;
    tni_scratch     w = tni_scratch_begin(ctx, "checkpoint");
    tni_checksum    sum;
    int64_t         n = o->of.params->count;
    tn_status       s = tni_checkpoint_notes(ctx, notes, note_count);
    if (s != TN_OK) return s;
    c->names.bytes = (size_t)(6 + TNI_OPTIM_NUMBERS) * 40;
    for (int64_t i = 0; i < n; i++) c->names.bytes += 3 * (strlen(o->of.params->item[i]->name) + 40);
    c->named = (tn_named_tensor *)tni_take(&w, tni_plus(tni_area(3, n), 2), sizeof *c->named);
    c->notes = (tn_metadata *)tni_take(&w, tni_plus(tni_plus(n, note_count), 6 + TNI_OPTIM_NUMBERS), sizeof *c->notes);
    c->names.text = (char *)tni_take(&w, 1, c->names.bytes);
    c->moment = (int64_t *)tni_take(&w, tni_plus(tni_area(3, n), 2), sizeof *c->moment);
    if (w.failed) return tni_scratch_end(&w, TN_ERR_MEMORY);
    tni_seal seal = TNI_ZERO;
    seal.sum = &sum;
    seal.user = c;
    if (c->host) seal.begin = tni_checkpoint_begin, seal.put = tni_checkpoint_put, seal.end = tni_checkpoint_end;
    tni_checkpoint_list(c);
    for (int64_t i = 0; i < note_count; i++) tni_checkpoint_note(c, notes[i].key, notes[i].value);
    tni_checksum_open(&sum);
    return tni_scratch_end(&w, tni_safetensors_put(ctx, sink, c->named, c->tensors, c->notes, c->note_count, &seal));
}

/* Shared moments: the first process writes while all send. The moments are sent in the order of the file, where everything but
   the clock has one dtype, so that they are in the order of the list. */
static tn_status tni_checkpoint_together(tni_checkpoint *c, tn_sink sink, const tn_metadata *notes, int64_t note_count,
                                         tn_status s)
{
    tn_optim     *o = c->optim;
    tn_ctx       *ctx = o->owned.ctx;
    tni_scratch   w = tni_scratch_begin(ctx, "checkpoint");
    c->host = (uint8_t *)tni_take(&w, TNI_CHUNK, 16);
    if (tni_comm_spreads(ctx->desc.comm)) c->piece = tn_tensor_create(ctx, TN_REAL, 1, TNI_DIMS(TNI_CHUNK));
    if (s == TN_OK) s = ctx->status;
    if (s == TN_OK && (!c->host || (tni_comm_spreads(ctx->desc.comm) && !c->piece))) s = TN_ERR_MEMORY;
    if (s == TN_OK && tn_comm_rank(ctx) == 0) s = tni_checkpoint_save(c, sink, notes, note_count);
    if (!c->asked) s = tni_checkpoint_begin(c, s);
    if (c->began && tn_comm_rank(ctx) > 0) {
        for (int64_t i = 0; i < o->of.params->count; i++)
            for (int k = 0; k < 2; k++) if (tni_checkpoint_moment(o, i, k)) tni_checkpoint_send(c, i, k, NULL);
        s = tni_checkpoint_end(c, c->sent);
    }
    if (c->ended) s = tni_optim_agree(o, TNI_MEET_CHECKPOINT, s);       /* the file has its name */
    tn_tensor_destroy(c->piece);
    return tni_scratch_end(&w, s);
}

TNI_COLD tn_status tn_checkpoint_write(const tn_optim *o, tn_sink sink, const tn_metadata *notes, int64_t note_count)
{
    tn_status s = tni_checkpoint_usable(o);
    tni_checkpoint c = TNI_ZERO;
    c.optim = (tn_optim *)o;            /* to keep what processes tell each other */
    if (o && o->of.params && tni_optim_shares(o)) return tni_checkpoint_together(&c, sink, notes, note_count, s);
    return s == TN_OK ? tni_checkpoint_save(&c, sink, notes, note_count) : s;
}

/* Reads the whole file to compare its checksum. Files of earlier versions have none; the note of the format says which. */
static tn_status tni_checkpoint_whole(const tn_safetensors *f)
{
    enum { PIECE = 1 << 18 };
    const tni_reader           *file = &f->file;
    const tn_safetensors_entry *e = tn_safetensors_find(f, TNI_CHECKSUM_NAME);
    const char                 *format = tn_safetensors_metadata(f, "tensornet.checkpoint");
    tni_scratch                 w = tni_scratch_begin(file->ctx, "checkpoint");
    tni_checksum                sum;
    uint8_t                     word[8];
    uint64_t                    expected;
    if (!e && (!format || strcmp(format, TNI_CHECKPOINT_UNSEALED) == 0)) return TN_OK;
    if (!e)
        return tni_fail(file->ctx, TN_ERR_FORMAT, "%s: the checkpoint is damaged: tensor " TNI_CHECKSUM_NAME " is missing, "
                        "expected for format %s", file->name.s, tni_quote(format).s);
    if (strcmp(e->dtype, "U32") != 0 || e->rank != 1 || e->shape[0] != 2 || e->offset + 8 != file->bytes)
        return tni_reader_fail(file, TN_ERR_FORMAT, e->offset, "tensor " TNI_CHECKSUM_NAME
                               " is %s %s, expected U32 [2] at the end of the file", e->dtype, TNI_SHAPE(e));
    uint8_t  *piece = (uint8_t *)tni_take(&w, 1, PIECE);
    tn_status s = piece ? TN_OK : TN_ERR_MEMORY;
    tni_checksum_open(&sum);
    for (uint64_t at = 0; at < e->offset && s == TN_OK;) {
        const size_t n = e->offset - at < PIECE ? (size_t)(e->offset - at) : (size_t)PIECE;
        if ((s = tni_reader_get(file, at, piece, n)) == TN_OK) tni_checksum_add(&sum, piece, n);
        at += n;
    }
    if (tni_scratch_end(&w, s) == TN_OK) s = tni_reader_get(file, e->offset, word, 8);
    if (s != TN_OK || (expected = tni_load_bits(word, 8, false)) == tni_checksum_value(&sum)) return s;
    return tni_fail(file->ctx, TN_ERR_FORMAT, "%s: the checkpoint is damaged: its checksum is %llx, expected %llx",
                    file->name.s, (unsigned long long)tni_checksum_value(&sum), (unsigned long long)expected);
}

tn_status tn_checkpoint_check(tn_ctx *ctx, tn_source source)
{
    tn_safetensors *f = NULL;
    tn_status       s = ctx ? tni_safetensors_open(ctx, &source, &f) : TN_ERR_ARG;
    if (s == TN_OK) s = tni_checkpoint_whole(f);
    tn_safetensors_close(f);
    return s;
}

/* What was read, before any of it is used. */
typedef struct tni_restored {
    tn_safetensors *file;
    tn_optim   *optim;
    tni_scratch w;                       /* has the lists and the name                 */
    size_t      widest;                  /* bytes of what was read                     */
    int64_t     n;                       /* parameters                                 */
    tn_tensor **value, **m[2];           /* [n] each; m NULL where the file has none   */
    double     *born;                    /* [n]                                        */
    bool       *made;                    /* [n]: the file has moments                  */
    tn_tensor  *scalars, *clock;
    uint64_t    steps, seed, calls;
    tni_names   names;                   /* for the name of one moment                 */
} tni_restored;

static const tn_safetensors_entry *tni_restored_moment(tni_restored *r, int k, const char *name)
{
    r->names.used = 0;
    return tn_safetensors_find(r->file, tni_names_write(&r->names, tni_moment_prefix[k], name));
}

static tn_status tni_restored_natural(tni_restored *r, const char *key, uint64_t most, uint64_t *out)
{
    const char *text = tn_safetensors_metadata(r->file, key);
    uint64_t    n = 0;
    bool        good = text && *text;
    for (const char *s = good ? text : ""; *s && good; s++) {
        uint64_t digit = (uint64_t)(unsigned char)*s - '0';
        good = digit <= 9 && n <= (most - digit) / 10;
        n = n * 10 + digit;
    }
    *out = n;
    if (good) return TN_OK;
    return tni_fail(r->file->file.ctx, TN_ERR_FORMAT, "%s: note %s is %s, expected an integer from 0 to %llu",
                    r->file->file.name.s, key, text ? tni_quote(text).s : "missing", (unsigned long long)most);
}

/* Checks the format and the kind of optimiser, and reads the notes. */
static tn_status tni_restored_notes(tni_restored *r)
{
    const tn_safetensors *f = r->file;
    const tn_optim_desc  *d = &r->optim->desc;
    tn_ctx               *ctx = f->file.ctx;
    const char *format = tn_safetensors_metadata(f, "tensornet.checkpoint");
    const char *kind = tn_safetensors_metadata(f, "tensornet.optim");
    tni_optim_number      n[TNI_OPTIM_NUMBERS];
    tn_status             s;
    if (!format || !kind)
        return tni_fail(ctx, TN_ERR_FORMAT, "%s: not a checkpoint: no note tensornet.%s; tn_params_read reads weights",
                        f->file.name.s, format ? "optim" : "checkpoint");
    if (strcmp(format, TNI_CHECKPOINT_FORMAT) != 0 && strcmp(format, TNI_CHECKPOINT_UNSEALED) != 0)
        return tni_fail(ctx, TN_ERR_FORMAT, "%s: the checkpoint's format is %s, expected \"" TNI_CHECKPOINT_UNSEALED
                        "\" or \"" TNI_CHECKPOINT_FORMAT "\"", f->file.name.s, tni_quote(format).s);
    if (strcmp(kind, tni_optim_names[d->kind]) != 0)
        return tni_fail(ctx, TN_ERR_ARG, "%s: the checkpoint's optimiser is %s, expected \"%s\"", f->file.name.s,
                        tni_quote(kind).s, tni_optim_names[d->kind]);
    if ((s = tni_restored_natural(r, "tensornet.steps", TNI_MOST_STEPS, &r->steps)) != TN_OK
        || (s = tni_restored_natural(r, "tensornet.seed", UINT64_MAX, &r->seed)) != TN_OK
        || (s = tni_restored_natural(r, "tensornet.calls", TNI_MOST_STEPS, &r->calls)) != TN_OK) return s;
    tni_optim_numbers(d, n);
    for (int k = 0; k < TNI_OPTIM_NUMBERS; k++) {
        char        here[32];
        const char *there = tn_safetensors_metadata(f, n[k].name);
        tni_exact_text(here, n[k].value);
        if (!there || strcmp(here, there) != 0)
            tni_log(ctx, TN_LOG_WARN, "%s: %s is %s in the checkpoint and %s here", f->file.name.s, n[k].name + 10,
                    there ? tni_quote(there).s : "missing", here);
    }
    return TN_OK;
}

static tn_status tni_restored_shape(tni_restored *r, const tn_safetensors_entry *e, const char *name, const tn_tensor *like)
{
    tn_ctx *ctx = r->file->file.ctx;
    if (!e) return tni_fail(ctx, TN_ERR_FORMAT, "%s: tensor %s is missing", r->file->file.name.s, name);
    if (e->rank != like->rank || memcmp(e->shape, like->shape, (size_t)e->rank * sizeof *e->shape) != 0)
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: tensor %s is %s, expected %s", r->file->file.name.s,
                        tni_quote(e->name).s, TNI_SHAPE(e), TNI_SHAPE(like));
    if (strcmp(e->dtype, tn_dtype_name(like->dtype)) != 0)
        return tni_fail(ctx, TN_ERR_DTYPE, "%s: tensor %s is %s, expected the context's %s; tn_params_read converts weights",
                        r->file->file.name.s, tni_quote(e->name).s, e->dtype, tn_dtype_name(like->dtype));
    return TN_OK;
}

/* The moments of parameter i: as many as its rule keeps, or none if it was never updated. */
static tn_status tni_restored_moments(tni_restored *r, int64_t i, int64_t *entries)
{
    const tn_param *p = r->optim->of.params->item[i];
    tn_ctx         *ctx = r->file->file.ctx;
    int             wanted = tni_optim_wants(r->optim, p), have = 0;
    uint64_t        born = 0;
    tn_status       s = TN_OK;
    for (int k = 0; k < 2 && s == TN_OK; k++) {
        const tn_safetensors_entry *e = tni_restored_moment(r, k, p->name);
        if (!e) continue;
        have++;
        if (k < wanted) s = tni_restored_shape(r, e, e->name, p->value);
    }
    if (s != TN_OK) return s;
    *entries += have;
    if (have != 0 && have != wanted)
        return tni_fail(ctx, TN_ERR_ARG, "%s: parameter %s has %d moments in the file, expected %d for its rule here, %s",
                        r->file->file.name.s, tni_quote(p->name).s, have, wanted,
                        tni_optim_names[tni_optim_rule(r->optim, p)]);
    r->names.used = 0;
    tni_names_write(&r->names, "tensornet.born.", p->name);
    if (have > 0 && tn_safetensors_metadata(r->file, r->names.text))
        s = tni_restored_natural(r, r->names.text, TNI_MOST_STEPS, &born);
    r->born[i] = (double)born;
    return s;
}

static bool tni_restored_knows(const tni_restored *r, const char *name)
{
    static const char *const own[] = {"optim.scalars", "optim.clock", TNI_CHECKSUM_NAME};
    const char *of = name;
    for (int k = 0; k < 3; k++) if (strcmp(name, own[k]) == 0) return true;
    for (int k = 0; k < 2; k++) if (strncmp(name, tni_moment_prefix[k], 8) == 0) of = name + 8;
    const tn_param *p = tn_params_find(r->optim->of.params, of);
    return p && strcmp(p->name, of) == 0;           /* a tied parameter has one name in a file: its first */
}

/* Everything that can be checked by the header. */
static tn_status tni_restored_check(tni_restored *r)
{
    const tn_safetensors *f = r->file;
    const tn_params      *ps = r->optim->of.params;
    tn_ctx               *ctx = f->file.ctx;
    int64_t               entries = r->n + 2 + (tn_safetensors_find(f, TNI_CHECKSUM_NAME) != NULL);
    tn_status             s = tni_restored_notes(r);
    for (int64_t i = 0; i < r->n && s == TN_OK; i++) {
        const tn_param *p = ps->item[i];
        s = tni_param_check(f, p);
        if (s == TN_OK) s = tni_restored_shape(r, tn_safetensors_find(f, p->name), p->name, p->value);
        if (s == TN_OK) s = tni_restored_moments(r, i, &entries);
    }
    if (s == TN_OK) s = tni_restored_shape(r, tn_safetensors_find(f, "optim.scalars"), "optim.scalars", r->optim->scalars);
    if (s == TN_OK) s = tni_restored_shape(r, tn_safetensors_find(f, "optim.clock"), "optim.clock", ctx->clock);
    for (int64_t i = 0; s == TN_OK && tn_safetensors_count(f) > entries && i < tn_safetensors_count(f); i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(f, i);
        if (!tni_restored_knows(r, e->name))
            s = tni_fail(ctx, TN_ERR_ARG, "%s: tensor %s %s is neither a parameter here nor a moment of one", f->file.name.s,
                         tni_quote(e->name).s, TNI_SHAPE(e));
    }
    return s;
}

static bool tni_restored_finite(const void *host, tn_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) if (!(fabs(tni_load(host, dtype, i)) < HUGE_VAL)) return false;
    return true;
}

/* Reads one tensor of the file, next to the one that it will replace. */
static tn_status tni_restored_read(tni_restored *r, const tn_safetensors_entry *e, tn_tensor **out)
{
    tn_status s = tni_entry_read(r->file, e, out);
    if (s == TN_OK && (*out)->bytes > r->widest) r->widest = (*out)->bytes;
    return s;
}

/* Checks the number of updates so far: bias corrections divide by a function of it, and no parameter can be newer. */
static tn_status tni_restored_scalars(tni_restored *r)
{
    double    v[TNI_SCALARS], latest = 0;
    int64_t   i;
    tn_status s = tni_restored_read(r, tn_safetensors_find(r->file, "optim.scalars"), &r->scalars);
    if (s == TN_OK) s = tn_read(r->scalars, TN_F64, v, TNI_SCALARS);
    for (i = 0; i < r->n; i++) if (r->born[i] > latest) latest = r->born[i];
    if (s != TN_OK) return s;
    if (!(v[TNI_STEP] >= latest && v[TNI_STEP] <= (double)r->steps))
        return tni_fail(r->file->file.ctx, TN_ERR_FORMAT, "%s: tensor optim.scalars has %g updates, expected %g to %g",
                        r->file->file.name.s, v[TNI_STEP], latest, (double)r->steps);
    if (v[TNI_SIZE] == 0) return TN_OK;
    return tni_fail(r->file->file.ctx, TN_ERR_FORMAT, "%s: tensor optim.scalars has a norm of %g, expected 0",
                    r->file->file.name.s, v[TNI_SIZE]);
}

/* Moment k of parameter i: of shared ones the part of this process. */
static tn_status tni_restored_moment_read(tni_restored *r, const tn_safetensors_entry *e, int64_t i, int k)
{
    tn_optim      *o = r->optim;
    const tni_span own = tni_optim_own(o, i);
    tni_number     n;
    if (own.count == tn_tensor_count(o->of.params->item[i]->value)) return tni_entry_read(r->file, e, &r->m[k][i]);
    r->m[k][i] = tn_tensor_create(o->owned.ctx, TN_REAL, 1, &own.count);
    if (!r->m[k][i]) return TN_ERR_MEMORY;
    tni_safetensors_number(e->dtype, &n);
    return tni_read_numbers(tni_entry_file(r->file, e), e->offset + (uint64_t)own.begin * (n.bits / 8), n, 0, r->m[k][i]);
}

static tn_status tni_restored_read_all(tni_restored *r)
{
    tn_status s = tni_restored_scalars(r);
    if (s == TN_OK) s = tni_optim_grow(r->optim);
    if (s == TN_OK) s = tni_optim_places(r->optim);
    if (s == TN_OK) s = tni_restored_read(r, tn_safetensors_find(r->file, "optim.clock"), &r->clock);
    for (int64_t i = 0; i < r->n && s == TN_OK; i++) {
        const tn_param *p = r->optim->of.params->item[i];
        s = tni_restored_read(r, tn_safetensors_find(r->file, p->name), &r->value[i]);
        for (int k = 0; k < 2 && s == TN_OK; k++) {
            const tn_safetensors_entry *e = tni_restored_moment(r, k, p->name);
            r->made[i] = r->made[i] || e;
            if (e) s = tni_restored_moment_read(r, e, i, k);
        }
    }
    return s;
}

/* Copies the bytes through `host`, so that no kernel needs memory. */
static tn_status tni_restored_move(tni_restored *r, tn_tensor *to, const tn_tensor *from, const char *name, void *host)
{
    tn_ctx *ctx = r->file->file.ctx;
    if (from->bytes == 0) return TN_OK;
    tni_rewritten(to);
    tn_status s = tni_to_host(ctx, host, from->data, from->bytes);
    if (s == TN_OK && !tni_restored_finite(host, from->dtype, tn_tensor_count(from)))
        tni_log(ctx, TN_LOG_WARN, "%s: tensor %s holds numbers that are not finite", r->file->file.name.s,
                tni_quote(name).s);
    if (s == TN_OK) s = tni_to_device(ctx, to->data, host, from->bytes);
    return s == TN_OK ? s : tni_backend_fail(ctx, s, "checkpoint");
}

static tn_status tni_restored_set(tni_restored *r, void *host)
{
    tn_optim *o = r->optim;
    tn_ctx   *ctx = o->owned.ctx;
    tn_status s = tni_restored_move(r, o->scalars, r->scalars, "optim.scalars", host);
    tni_graphs_lose(ctx, NULL, "a checkpoint was read");       /* each parameter's first step may have changed */
    if (s == TN_OK) s = tni_restored_move(r, ctx->clock, r->clock, "optim.clock", host);
    for (int64_t i = 0; i < r->n && s == TN_OK; i++) {
        const tn_param *p = o->of.params->item[i];
        s = tni_restored_move(r, p->value, r->value[i], p->name, host);
        tni_optim_forget(&o->state[i]);
        for (int k = 0; k < 2; k++) {
            o->state[i].m[k] = r->m[k][i];
            r->m[k][i] = NULL;
        }
        o->state[i].rule = tni_optim_rule(o, p);
        o->state[i].born = r->born[i];
        o->state[i].made = r->made[i];
    }
    o->steps = (int64_t)r->steps;
    ctx->desc.seed = r->seed;
    ctx->calls = (int64_t)r->calls;
    return s == TN_OK ? tn_params_zero_grad(o->of.params) : s;
}

static tn_status tni_restored_run(tni_restored *r)
{
    tn_status s = tni_checkpoint_whole(r->file);
    if (s == TN_OK) s = tni_restored_check(r);
    if (s == TN_OK) s = tni_restored_read_all(r);
    void *host = s == TN_OK ? tni_take(&r->w, 1, r->widest) : NULL;
    if (s != TN_OK) return s;
    return host ? tni_restored_set(r, host) : TN_ERR_MEMORY;
}

static tn_status tni_restored_lists(tni_restored *r)
{
    size_t longest = 0;
    r->born = (double *)tni_take_zeroed(&r->w, r->n, sizeof *r->born);
    r->made = (bool *)tni_take_zeroed(&r->w, r->n, sizeof *r->made);
    r->value = (tn_tensor **)tni_take_zeroed(&r->w, tni_area(3, r->n), sizeof *r->value);
    for (int64_t i = 0; i < r->n; i++) if (strlen(r->optim->of.params->item[i]->name) > longest)
        longest = strlen(r->optim->of.params->item[i]->name);
    r->names.bytes = longest + sizeof "tensornet.born.";
    r->names.text = (char *)tni_take(&r->w, 1, r->names.bytes);
    if (r->w.failed) return TN_ERR_MEMORY;
    for (int k = 0; k < 2; k++) r->m[k] = r->value + (k + 1) * r->n;
    return TN_OK;
}

tn_status tn_checkpoint_read(tn_optim *o, tn_source source)
{
    tn_status s = tni_checkpoint_usable(o);
    if (s != TN_OK) return s;
    tni_restored r = TNI_ZERO;
    int64_t placed = o->placed;
    r.optim = o;
    r.n = o->of.params->count;
    r.w = tni_scratch_begin(o->owned.ctx, "checkpoint");
    s = tni_restored_lists(&r);
    if (s == TN_OK) s = tni_safetensors_open(o->owned.ctx, &source, &r.file);
    if (s == TN_OK) s = tni_restored_run(&r);
    if (s != TN_OK) o->placed = placed;
    tn_safetensors_close(r.file);
    tn_tensor_destroy(r.scalars);
    tn_tensor_destroy(r.clock);
    for (int64_t i = 0; r.value && i < 3 * r.n; i++) tn_tensor_destroy(r.value[i]);
    return tni_scratch_end(&r.w, s);
}
#endif /* TN_NO_TRAINING */
