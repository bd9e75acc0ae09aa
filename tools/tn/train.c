/* train.c - tn train: trains a model on text, in a folder of its own

   The order of the data is a function of the seed and the step alone, and a checkpoint holds everything else that a later
   step depends on. So a run that was killed and resumed is bit-identical to one that was not. The order within a step is
   always: train, log, evaluate on held-out data, generate a sample, save. */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the loop ----------------------------------------------------------------------------------------------- */

static bool is_due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static void train_step_on_host(run *r)
{
    const bool     log_layers = is_due(r->s->log_layers, r->step + 1);
    const uint64_t sent = tn_ctx_traffic(r->m.ctx).bytes;
    snapshot   before = {0};
    double     start = now(), loss = batch_loss(r, &r->feed, true), lr = current_rate(r);
    if (r->broken_off && tn_ctx_status(r->m.ctx) == TN_OK) return;
    if (log_layers) before = open_snapshot(r);
    if (!(loss <= loss_limit(r)) || tn_ctx_status(r->m.ctx) != TN_OK || tn_optim_step(r->optim) != TN_OK) {
        fault found = take_error(r->m.ctx);
        stop_diverged(r, loss, &found);
        return;
    }
    r->sent = (double)(tn_ctx_traffic(r->m.ctx).bytes - sent);
    log_step(r, loss, lr, tn_optim_grad_norm(r->optim), now() - start, 1);
    if (log_layers) close_snapshot(r, &before);
}

/* Waits for the device at least once per second, and before anything that depends on the steps so far. */
static void train_step_on_device(run *r, int64_t until)
{
    const settings *s = r->s;
    launch_step(r, &r->feed);
    r->step++;
    if (tn_ctx_status(r->m.ctx) != TN_OK || r->feed.waiting == MAX_PENDING || now() - r->feed.since > 1 ||
        r->step == until || stop_signal() || save_signal(false) || is_due(s->val_every, r->step) || is_due(s->sample_every, r->step) ||
        is_due(s->save_every, r->step) || is_due(s->weights_every, r->step))
        finish_steps(r);
}

static double step_tokens(const run *r) { return (double)(r->s->accumulate * r->s->batch * r->m.desc.context); }

static void stop_without_log(const run *r)
{
    if (r->journal.failed) fail("stopped because the log cannot be written; the last checkpoint is %s", r->saved);
}

/* Processes stop together, after a step in which one of them had a signal, or between two parts of it. */
static int stopped_by(const run *r) { return other_processes() ? r->stops : stop_signal(); }

/* Whether a signal to one of them asked for a checkpoint after this step. */
static bool asked_to_save(run *r)
{
    const bool asked = r->saves || (!other_processes() && save_signal(true));
    r->saves = false;
    return asked;
}

static void save_step(run *r)
{
    const bool asked = asked_to_save(r);
    stop_without_log(r);
    save_history(r);
    if (r->step == r->steps || asked || is_due(r->s->save_every, r->step)) {
        save_or_stop(r);
        link_checkpoint(r);
    }
    if (asked) journal_print(&r->journal, "step %lld: saved %s, as a signal asked\n", (long long)r->step, r->saved);
}

void train_until(run *r, int64_t until, const char *title)
{
    const settings *s = r->s;
    while (r->step < until && !stopped_by(r) && !r->diverged) {
        if (r->device && !other_processes()) train_step_on_device(r, until);
        else train_step_on_host(r);
        if (r->broken_off) break;
        if (r->feed.waiting) continue;
        const bool last = r->step == r->steps;
        if (title) show_progress(&r->journal, r->step, r->steps, r->rate, share_of_peak(r), last);
        if (is_due(s->val_every, r->step) && !last) {
            evaluate_held_out(r, false);
            if (title) draw_curve(&r->journal, r->m.ctx, title, step_tokens(r));
        }
        if (is_due(s->sample_every, r->step) && !last) write_sample(r);
        if (title) save_step(r);
    }
    finish_steps(r);                                  /* those that were not waited for when the loop ended */
}

static void train(run *r, const char *title)
{
    const settings *s = r->s;
    if (!r->step) save_history(r);
    train_until(r, s->stop_at && s->stop_at < r->steps ? s->stop_at : r->steps, title);
    if (r->sent > 0)
        journal_print(&r->journal, "sent: %.4g MB per step by each of %d processes\n", r->sent / 1e6, tn_comm_size(r->m.ctx));
}

/* Evaluates the trained model on all of the held-out part. This may take long, so the last step is saved before; a run that
   was killed here comes back to it by --resume. */
static void evaluate_trained(run *r, const char *title)
{
    if (of_first(r->m.ctx, r->journal.all_step == (double)r->step) != 0) return;
    evaluate_held_out(r, true);
    if (r->s->sample_every) write_sample(r);
    draw_curve(&r->journal, r->m.ctx, title, step_tokens(r));
    stop_without_log(r);
}

/* Evaluates the loss once more: after the last step there is no other whose loss would show that it succeeded. */
static void finish(run *r)
{
    double loss = batch_loss(r, &r->feed, false);
    fault  found = take_error(r->m.ctx);
    if (!(loss <= loss_limit(r)) || found.status != TN_OK) stop_diverged(r, loss, &found);
    remove_old_checkpoints(r);
    char *why = save_weights(r, "model.safetensors");
    if (why) fail("%s; the last checkpoint is %s", why, r->saved);
    link_model(r);
}

/* Reads the settings of a file or a checkpoint. A length of the training on the command line replaces theirs. */
static void apply_settings(const char *text, size_t bytes, const char *name)
{
    option *steps = find_option(&train_usage, "steps");
    steps->given = steps->given || find_option(&train_usage, "tokens")->given || find_option(&train_usage, "minutes")->given;
    read_settings(text, bytes, name);
}

/* A stranger's file may name any path. */
static void say_named(run *r, const char *path)
{
    if (path) journal_print(&r->journal, "reading %s, which %s names\n", path, train_settings.config);
}

/* The settings of the run that wrote a checkpoint. */
static void apply_settings_of(const char *path)
{
    tn_ctx *look;
    if (find_option(&train_usage, "tokenizer")->given || find_option(&train_usage, "vocab")->given)
        usage_error("--tokenizer or --vocab is given with --from, expected neither: a run keeps its tokenizer");
    tn_safetensors *st = open_checkpoint(path, &look);
    const char     *text = checkpoint_note(st, path, "tn.config");
    apply_settings(text, strlen(text), path);
    tn_ctx_destroy(look);
}

/* Of a run's folder --from means the newest checkpoint. */
static void find_from(const char **path)
{
    int64_t step;
    if (!is_folder(*path)) return;
    char *file = newest_checkpoint(*path, &step);
    if (!file) fail("--from: %s holds no checkpoint, expected step-NNNNNNNN.safetensors", *path);
    free((void *)*path);
    *path = file;
}

/* Takes the settings from --config or --from, and starts. */
static void begin_new(run *r)
{
    const bool tokenizer_named = find_option(&train_usage, "tokenizer")->given;
    const bool vocab_named = find_option(&train_usage, "vocab")->given;
    if (train_settings.config && train_settings.from)
        usage_error("--config is given with --from, expected one of them: a checkpoint holds its settings");
    if (train_settings.config) {
        size_t bytes;
        char      *text = read_file(train_settings.config, BY_USER, &bytes);
        apply_settings(text, bytes, train_settings.config);
        free(text);
        for (int64_t i = 0; !r->data_named && i < train_settings.data.count; i++) say_named(r, train_settings.data.path[i]);
        for (int64_t i = 0; !r->val_named && i < train_settings.val.count; i++) say_named(r, train_settings.val.path[i]);
        if (!tokenizer_named) say_named(r, train_settings.tokenizer);
        say_named(r, train_settings.from);
        say_named(r, train_settings.teacher);
    } else if (train_settings.from) {
        find_from(&train_settings.from);
        apply_settings_of(train_settings.from);
    }
    if (!train_settings.data.count) usage_error("no data is given, expected tn train FILE --out RUN");
    if (!train_settings.out) usage_error("no --out is given, expected tn train FILE --out RUN");
    if (train_settings.keep_best && !train_settings.val_every)
        usage_error("--keep-best is given with --val-every 0, expected --val-every of at least 1");
    if (train_settings.teacher && (tokenizer_named || (vocab_named && !are_shards(&train_settings.data, "--data"))))
        usage_error("--tokenizer or --vocab is given with --teacher, expected neither: the teacher's tokenizer is used");
    r->folder = train_settings.out;
    start_run(r, false);
}

int train_main(int argc, char **argv)
{
    run  r;
    char title[256], word[16];
    memset(&r, 0, sizeof r);
    r.s = &train_settings;
    read_options_and_files(&train_usage, argc, argv, &train_settings.data);
    int lengths = find_option(&train_usage, "steps")->given + find_option(&train_usage, "tokens")->given +
              find_option(&train_usage, "minutes")->given;
    if (lengths > 1) usage_error("%d of --steps, --tokens and --minutes are given, expected one", lengths);
    r.data_named = train_settings.data.count > 0;
    r.val_named = train_settings.val.count > 0;
    r.journal.trigram = r.journal.fivegram = NAN;     /* not known yet */
    open_processes(choice_word(COMM_WORDS, train_settings.comm, word, sizeof word), train_settings.device);
    fold_output();
    catch_signals(train_settings.resume ? train_settings.resume : train_settings.out);
    r.folder = train_settings.resume;
    if (train_settings.resume) {
        if (train_settings.out || train_settings.config || train_settings.from)
            usage_error("--%s is given with --resume, expected --resume RUN alone: the settings are those of the run",
                        train_settings.out ? "out" : train_settings.config ? "config" : "from");
        resume_run(&r);
    } else begin_new(&r);
    snprintf(title, sizeof title, "%.200s", r.folder);
    train(&r, title);
    if (r.step < r.steps) {
        clear_progress(&r.journal);
        if (r.saved_step != r.step) save_or_stop(&r);
        if (stopped_by(&r) && !stop_signal()) warn("stopped with all processes: another one has received signal %d", r.stops);
        print("Stopped after step %lld of %lld, saved %s. Continue: tn train --resume %s\n", (long long)r.step,
              (long long)r.steps, r.saved, r.folder);
    } else {
        evaluate_trained(&r, title);
        finish(&r);
        print("Done: saved %s/model.safetensors after %.1f s. Next: tn generate %s\n", r.folder,
              journal_seconds(&r.journal), r.folder);
    }
    int i = r.step < r.steps && stopped_by(&r) ? 128 + stopped_by(&r) : 0;
    if (!journal_close(&r.journal))
        fail("%s is saved, but %s may be incomplete", r.step < r.steps ? r.saved : join_path(r.folder, "model.safetensors"),
             join_path(r.folder, "log.jsonl"));
    close_run(&r);
    close_processes();
    return i;
}
