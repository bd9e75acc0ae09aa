/* train.c - tn train: from text to a model, in a folder of its own

   The order of the data is a function of the seed and the step alone, and a checkpoint holds all else that a later step
   depends on: so a run that was killed and resumed has the bits of one that was not. Whatever happens in a step happens in
   one order: train, log, look at the held-out part, write a sample, save. */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the loop ----------------------------------------------------------------------------------------------- */

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static void train_here(run *r)
{
    double start = now(), loss = batch_loss(r, &r->feed, true), lr = tn_optim_lr(r->optim);
    if (!(loss <= most_loss(r)) || tn_ctx_status(r->m.ctx) != TN_OK || tn_optim_step(r->optim) != TN_OK) {
        fault found = take_fault(r->m.ctx);
        stop_exploded(r, loss, &found);
    }
    tell_step(r, loss, lr, tn_optim_grad_norm(r->optim), now() - start, 1);
}

/* At least once a second, and before anything that depends on the steps so far, a device is waited for. */
static void train_there(run *r, int64_t until)
{
    const settings *s = r->s;
    launch_step(r, &r->feed);
    r->step++;
    if (tn_ctx_status(r->m.ctx) != TN_OK || r->feed.waiting == KEPT || now() - r->feed.since > 1 || r->step == until ||
        stop_signal() || due(s->val_every, r->step) || due(s->sample_every, r->step) || due(s->save_every, r->step))
        settle_steps(r);
}

static void train(run *r, const char *title)
{
    const settings *s = r->s;
    int64_t         until = s->stop_at && s->stop_at < r->steps ? s->stop_at : r->steps;
    while (r->step < until && !stop_signal()) {
        bool last;
        if (r->device) train_there(r, until);
        else train_here(r);
        if (r->feed.waiting) continue;
        last = r->step == r->steps;
        show_progress(&r->journal, r->step, r->steps, r->rate, r->rate * r->flops / r->peak, last);
        if (due(s->val_every, r->step) && !last) {
            look_at_held_out(r, false);
            draw_curve(&r->journal, r->m.ctx, title);
        }
        if (due(s->sample_every, r->step) && !last) write_sample(r);
        if (last) {
            look_at_held_out(r, true);
            if (s->sample_every) write_sample(r);
            draw_curve(&r->journal, r->m.ctx, title);
        }
        if (r->journal.failed) fail("stopped, for the log; the last checkpoint is %s", r->saved);
        if (last || due(s->save_every, r->step)) save_or_stop(r);
    }
    settle_steps(r);                                  /* stopped just now */
}

/* The last step has no next one, whose loss would tell that it was a good one. */
static void finish(run *r)
{
    char   *path = join(r->folder, "model.safetensors"), *why;
    double  loss = batch_loss(r, &r->feed, false);
    fault   found = take_fault(r->m.ctx);
    tn_note notes[2];
    weights w;
    buffer  begin = {0};
    if (!(loss <= most_loss(r)) || found.status != TN_OK) stop_exploded(r, loss, &found);
    remove_old(r);
    w.r = r;
    w.notes = notes;
    w.count = model_notes(r, notes, &begin);
    why = write_by(path, put_weights, &w, r->m.ctx);
    if (why) fail("%s; the last checkpoint is %s", why, r->saved);
    free(begin.data);
    free(path);
}

/* Settings that a file or a checkpoint holds. What the command line says about the length goes before them. */
static void take_settings(const char *text, size_t bytes, const char *name)
{
    option *steps = find_option(&train_usage, "steps");
    steps->given = steps->given || find_option(&train_usage, "tokens")->given || find_option(&train_usage, "minutes")->given;
    read_config(&train_usage, text, bytes, name);
}

/* The settings of the run that a checkpoint is of. */
static void take_settings_of(const char *path)
{
    tn_ctx         *look;
    tn_safetensors *st;
    const char     *text;
    if (find_option(&train_usage, "tokenizer")->given || find_option(&train_usage, "vocab")->given)
        misuse("--from keeps the tokenizer of its run: no --tokenizer or --vocab beside it");
    st = open_checkpoint(path, &look);
    text = note_of(st, path, "tn.config");
    take_settings(text, strlen(text), path);
    tn_ctx_destroy(look);
}

int train_main(int argc, char **argv)
{
    run    r;
    char   title[256];
    int    i, lengths;
    memset(&r, 0, sizeof r);
    r.s = &asked;
    read_options_and_files(&train_usage, argc, argv, &asked.data);
    lengths = find_option(&train_usage, "steps")->given + find_option(&train_usage, "tokens")->given +
              find_option(&train_usage, "minutes")->given;
    if (lengths > 1) misuse("one of --steps, --tokens and --minutes says how long it trains, not %d", lengths);
    r.journal.trigram = r.journal.fivegram = NAN;     /* until they are known */
    catch_signals();
    r.folder = asked.resume;
    if (asked.resume) {
        if (asked.out || asked.config || asked.from)
            misuse("--resume takes everything from the run: no --%s beside it",
                   asked.out ? "out" : asked.config ? "config" : "from");
        resume_run(&r);
    } else {
        if (asked.config && asked.from) misuse("--from brings its own settings: no --config beside it");
        if (asked.config) {
            size_t bytes;
            char  *text = read_file(asked.config, &bytes);
            take_settings(text, bytes, asked.config);
            free(text);
        } else if (asked.from) take_settings_of(asked.from);
        if (!asked.data.count) misuse("tn train wants data: tn train FILE --out RUN");
        if (!asked.out) misuse("tn train wants a folder for the run: --out RUN");
        r.folder = asked.out;
        start_run(&r, false);
    }
    snprintf(title, sizeof title, "%.200s", r.folder);
    train(&r, title);
    clear_progress(&r.journal);
    if (r.step < r.steps) {
        save_or_stop(&r);
        printf("stopped after step %lld of %lld, saved in %s\ntn train --resume %s goes on\n", (long long)r.step,
               (long long)r.steps, r.saved, r.folder);
    } else {
        finish(&r);
        printf("done: %s/model.safetensors after %.1f s; tn generate %s writes with it\n", r.folder,
               journal_seconds(&r.journal), r.folder);
    }
    i = r.step < r.steps && stop_signal() ? 128 + stop_signal() : 0;
    if (!journal_close(&r.journal))
        fail("%s is saved, but part of %s may be missing", r.step < r.steps ? r.saved : join(r.folder, "model.safetensors"),
             join(r.folder, "log.jsonl"));
    free_corpus(&r.data);
    close_feed(&r.feed);
    free(r.ids);
    free(r.targets);
    free(r.config.data);
    free(r.config_json);
    free(r.saved);
    close_model(&r.m);
    return i;
}
