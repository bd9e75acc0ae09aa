/* ablations.c - what matters in a one-layer bilinear story model, and what does not

   A document on such models gives differences of loss: 0.2 nats for the place of the projection, 0.02 for biases, 0.1 for
   how the weights start, 0.05 for a ReLU layer of width 4 d against bilinear ones of 2 d and 3 d. This trains the same pairs
   and prints its own differences beside them, with paired seeds. A projection before the product, (P W x) * (P V x), folds
   into the encoders and is no projection at all; after it, P ((W x) * (V x)), it does not (docs/math.md 1). Only a
   projection after it can start from zero, as the others here do, so that difference has one of the starts in it.

   sh examples/get_data.sh kjv        (or --data FILE: any text)
   cc -O2 -I. examples/studies/ablations.c -o ablations -lm && ./ablations --quick
   runs.h tells what a study is; this one takes hours, and may be stopped and started again. The flags: --help */
#define _POSIX_C_SOURCE 200809L
#ifdef HAVE_STB_IMAGE_WRITE
#include "stb_image_write.h"
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#define PROGRAM "ablations"
#include "runs.h"

enum { BILINEAR_2X, BILINEAR_3X, RELU_4X, BEFORE, AFTER, AFTER_EQUAL, BIASES, INIT_GPT2, INIT_UNIFORM, VARIANTS };

typedef struct question { const char *what; double document; int worse, better; } question;

static const question questions[] = {
    {"projection before the product - after, width d", 0.2, BEFORE, AFTER},
    {"projection before the product - after, as many parameters", 0.2, BEFORE, AFTER_EQUAL},
    {"without biases - with", 0.02, BILINEAR_2X, BIASES},
    {"start: all normal, GPT-2's - what writes to the stream 0", 0.1, INIT_GPT2, BILINEAR_2X},
    {"start: all uniform, PyTorch's - what writes to the stream 0", 0.1, INIT_UNIFORM, BILINEAR_2X},
    {"ReLU of width 4 d - bilinear of 2 d", 0.05, RELU_4X, BILINEAR_2X},
    {"ReLU of width 4 d - bilinear of 3 d", 0.05, RELU_4X, BILINEAR_3X}
};

static void add_variants(study *s, entry e[VARIANTS])
{
    static const char *const name[VARIANTS] = {
        "bilinear_2x", "bilinear_3x", "relu_4x", "projection_before", "projection_after", "projection_after_equal",
        "biases", "init_gpt2", "init_uniform"
    };
    for (int i = 0; i < VARIANTS; i++) {
        tn_transformer_desc d = study_desc(s);
        d.hidden = 2 * s->dim;
        switch (i) {
        case BILINEAR_3X:  d.hidden = 3 * s->dim; break;
        case RELU_4X:      d.hidden = 4 * s->dim; d.mlp = TN_MLP_RELU; break;
        case BEFORE:       d.hidden = s->dim; d.no_projection = true; break;
        case AFTER:        d.hidden = s->dim; break;
        case AFTER_EQUAL:  d.hidden = fit_hidden(&d, s->variant[BEFORE].params); break;
        case BIASES:       d.mlp_bias = d.mlp_out_bias = d.attn_bias = d.attn_out_bias = true; break;
        case INIT_GPT2:    d.zero_out = d.zero_head = false; d.init = TN_INIT_DEFAULT; break;
        case INIT_UNIFORM: d.zero_out = d.zero_head = false; d.init = TN_INIT_UNIFORM; d.embed_std = 0.02; break;
        default: break;
        }
        e[i].v = study_add(s, name[i], d, false);
        e[i].label = name[i];
    }
}

int main(int argc, char **argv)
{
    study     *s = study_create("out/ablations");
    const flag flags[] = {STUDY_FLAGS(s), {0}};
    entry      e[VARIANTS];

    read_flags(argc, argv, flags);
    study_open(s);
    add_variants(s, e);
    study_run(s);
    study_table(s, "ablations", e, VARIANTS);
    study_plot(s, "ablations", "A one-layer bilinear model, and what is taken away", e, VARIANTS);
    printf("\n%-60s %10s %18s   nats a token\n", "", "document", "here");
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        double difference[MAX_SEEDS];
        const question *q = &questions[i];
        for (int64_t k = 0; k < s->seeds; k++)
            difference[k] = s->run[q->worse][k].token[POINTS - 1] - s->run[q->better][k].token[POINTS - 1];
        printf("%-60s %10.2f", q->what, q->document);
        estimate apart = estimate_of(difference, s->seeds);
        print_estimate(apart);
        printf("   %s\n", verdict(apart));
    }
    printf("seconds: %.1f\n", now() - s->started);
    study_destroy(s);
    return 0;
}
