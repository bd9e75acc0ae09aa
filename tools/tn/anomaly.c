/* anomaly.c - tn circuits anomaly: what a training added to a model, on all texts of two tokens */
#include "circuits.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_WORDS = 2048, USUAL_ROWS = 10, MOST_TEXTS = 65536 };

/* Whether an earlier text than number i has the same second token and the same next one. */
static bool is_repeated(const int32_t *at, int64_t i)
{
    for (int64_t j = 0; j < i; j++) if (at[3 * j + 1] == at[3 * i + 1] && at[3 * j + 2] == at[3 * i + 2]) return true;
    return false;
}

/* The probability of `next` after two tokens. */
static double chance_of(const model *m, const int32_t *at)
{
    tn_ctx_reset(m->ctx);
    double      *log_p = numbers_in(tn_log_softmax(m->ctx, tn_transformer_forward(m->ctx, &m->net, ids_tensor(m->ctx, at, 2))));
    check_ctx(m->ctx, "a text of two tokens");
    const double p = exp(log_p[m->desc.vocab + at[2]]);
    free(log_p);
    return p;
}

void anomaly_report(subject *s, const char *other)
{
    static const column columns[] = {
        {"first", NULL, 12, "%s"}, {"second", NULL, 12, "%s"}, {"next", NULL, 12, "%s"}, {"nats", NULL, 9, "%.4f"},
        {"p", NULL, 9, "%.4f"}, {"reference", "p before", 9, "%.2e"}, {NULL, NULL, 0, NULL}
    };
    const int64_t V = s->m.desc.vocab, top = circuit_settings.top ? circuit_settings.top : USUAL_ROWS;
    int64_t       shown = 0;
    const double  start = now();
    model         reference;
    tn_transformer_anomaly_result r;
    open_model_in(s->m.ctx, &reference, other, circuit_settings.tokenizer, NULL);
    check_finite(&reference, other);
    if (reference.desc.vocab != V)
        fail("%s has a vocabulary of %lld tokens, expected %lld, that of %s", other, (long long)reference.desc.vocab,
             (long long)V, s->path);
    check_names(s, &reference, other);
    if (V > MOST_WORDS)
        fail("%s has a vocabulary of %lld tokens, expected at most %d, as all %.2g texts of two tokens are run", s->path,
             (long long)V, MOST_WORDS, (double)V * (double)V);
    if (tn_transformer_anomaly(&s->m.net, &reference.net, V * top < MOST_TEXTS ? V * top : MOST_TEXTS, &r) != TN_OK) {
        char *why = taken_error(s->m.ctx);
        fail("%s and %s cannot be compared: %s", s->path, other, why);
    }
    const int64_t count = r.terms.count;
    int32_t      *at = (int32_t *)allocate((size_t)(3 * count), sizeof *at);
    double       *nats = numbers_in(r.terms.values);
    tn_read(r.terms.index, TN_I32, at, 3 * count);
    check_ctx(s->m.ctx, "the texts");
    report_table("texts", NULL, columns);
    for (int64_t i = 0; i < count && shown < top; i++) {
        const int32_t *x = at + 3 * i;
        if (is_repeated(at, i)) continue;
        shown++;
        report_row(columns, s->names[x[0]], s->names[x[1]], s->names[x[2]], nats[i], chance_of(&s->m, x),
                   chance_of(&reference, x));
    }
    report_note("Of all texts of two tokens, those whose next token became much likelier than it was for the reference: p "
                "log(p/p before), in nats; each second and next token once, with the first one that does most. The score is the "
                "largest one over the mean divergence of all texts. A trigger of two tokens is mostly an outlier; what is large must be "
                "learnt from models that are known to be clean. Longer triggers are not seen.");
    report_value("score", "%.4g", r.score);
    report_value("largest", "%.6g", r.largest);
    report_value("mean_divergence", "%.6g", r.mean);
    report_value("texts_compared", "%.0f", (double)V * (double)V);
    report_value("seconds", "%.2f", now() - start);
    tn_transformer_anomaly_destroy(&r);
    free(at);
    free(nats);
}
