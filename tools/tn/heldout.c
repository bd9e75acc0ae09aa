/* heldout.c - tn train: the loss on held-out data, and samples */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static scoring held_out_part(const run *r)
{
    scoring s = {0};
    s.m = &r->m;
    s.name = "the held-out part";
    s.ids = r->data.held;
    s.count = r->data.held_count;
    s.batch = r->s->batch;
    return s;
}

/* Of the evaluations on the same windows; NaN before the first. */
static double lowest_held_out(const journal *j)
{
    double low = NAN;
    for (int64_t i = 0; i < j->held.count; i++) if (!(j->held.y[i] >= low)) low = j->held.y[i];
    return low;
}

static void report_held_out(run *r, double nats, bool all)
{
    double bytes = nats_per_byte(&r->data, nats);
    char   text[64];
    if (!isfinite(nats)) {
        clear_progress(&r->journal);
        warn("after step %lld the held-out loss is %.4g, expected a finite number", (long long)r->step, nats);
        stop_and_advise(r);
    }
    journal_held(&r->journal, r->step, nats, all);
    if (isnan(bytes)) *text = 0;
    else snprintf(text, sizeof text, ",\"held_byte\":%.9g", bytes);
    journal_line(&r->journal, "\"step\":%lld,\"held\":%.9g%s,\"all\":%s", (long long)r->step, nats, text,
                 all ? "true" : "false");
    journal_print(&r->journal, "step %lld: held out %.4f nats per token%s%s", (long long)r->step, nats,
                  per_byte_text(&r->data, nats, text, sizeof text), all ? " (all of it)" : "");
    if (isfinite(r->journal.trigram))
        journal_print(&r->journal, "; trigram %.4f, 5-gram %.4f", r->journal.trigram, r->journal.fivegram);
    journal_print(&r->journal, "\n");
}

/* A long evaluation shows how far it is, and a signal ends it: the last checkpoint is saved already. */
static bool show_evaluation(void *user, int64_t done, int64_t count)
{
    show_part((journal *)user, "held out", done, count);
    return !stop_signal();
}

/* Of all held-out tokens; they may be many more than those of a step. */
static void evaluate_all(run *r, scoring s)
{
    s.proceed = show_evaluation;
    s.user = &r->journal;
    double nats = whole_loss(&s);
    if (isnan(nats) && any_of_all(r->m.ctx, stop_signal() != 0)) {
        clear_progress(&r->journal);
        warn("stopped before all of the held-out part was evaluated: tn eval %s evaluates it", r->folder);
    } else report_held_out(r, nats, true);
}

void evaluate_held_out(run *r, bool last)
{
    const scoring s = held_out_part(r);
    const bool    all = r->s->val_every && samples_all(&s, r->s->val_tokens);
    double        nats = NAN;
    if (r->s->val_every) {
        const double before = lowest_held_out(&r->journal);
        char        *why = NULL;
        nats = sampled_loss(&s, r->s->val_tokens);
        report_held_out(r, nats, false);
        if (r->s->keep_best && !(nats >= before)) why = save_weights(r, "best.safetensors");
        if (why) {                                    /* the checkpoints do not depend on it */
            clear_progress(&r->journal);
            warn("step %lld: %s; training continues", (long long)r->step, why);
            tn_ctx_clear_error(r->m.ctx);
        }
        free(why);
    }
    if (last && all) report_held_out(r, nats, true);
    else if (last) evaluate_all(r, s);
}

static void show_sample(journal *j, const char *text, size_t bytes)
{
    clear_progress(j);
    print("  ");
    print_text(text, bytes);
    print("\n");
    fflush(stdout);
}

void write_sample(run *r)
{
    const tn_tokenizer *t = r->m.tokenizer;
    const uint64_t seed = splitmix64((uint64_t)r->s->seed) ^ (uint64_t)r->step;
    sampling s = { .temperature = 0.8, .top_p = 0.95, .length = r->s->sample_length, .seed = seed };
    int32_t *ids;
    buffer   quoted = {0};
    if (!t || !is_first()) return;
    int64_t n = prompt_tokens(&r->m, r->s->prompt, s.seed, &ids);
    if (n > 0) {
        size_t bytes;
        s.length = r->s->sample_length > n ? r->s->sample_length : n + 1;
        if (s.length > r->m.desc.context) s.length = r->m.desc.context;
        ids = (int32_t *)resize(ids, (size_t)(s.length > n ? s.length : n), sizeof *ids);
        if (n < s.length) n = generate_tokens(&r->m, ids, n, &s);
        char *text = decode_tokens(t, ids, n, &bytes);
        json_quote(&quoted, text, bytes);
        journal_line(&r->journal, "\"step\":%lld,\"sample\":%s", (long long)r->step, quoted.data);
        if (!r->journal.silent) show_sample(&r->journal, text, bytes);
        free(text);
        free(quoted.data);
    }
    free(ids);
}
