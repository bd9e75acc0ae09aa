/* 19_circuits.c - which numbers of a trained transformer make it say the right verb?

   cc -O2 -I. examples/19_circuits.c -o 19_circuits -lm && ./19_circuits

   The cat often sleeps, the dog often barks; the cat never barks, the dog never sleeps. The verb is no sum of what noun and
   adverb say alone: they have to be multiplied. A transformer of one block learns it: attention brings the noun to the
   adverb, and a bilinear MLP multiplies. What it has learned is read from its weights, without a text; then one text is
   taken apart, and steered. Elhage et al. 2021, Pearce et al. 2024 */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { THE, CAT, DOG, OFTEN, NEVER, SLEEPS, BARKS, STOP, WORDS, T = 4, TEXTS = 4, STEPS = 300, DIM = 16 };

static const int32_t texts[TEXTS][T + 1] = {{THE, CAT, OFTEN, SLEEPS, STOP}, {THE, CAT, NEVER, BARKS, STOP},
                                            {THE, DOG, OFTEN, BARKS, STOP}, {THE, DOG, NEVER, SLEEPS, STOP}};
static tn_tensor *row(tn_tensor *x, int64_t i) { return tn_reshape(tn_slice(x, 0, i, i + 1), 1, (int64_t[]){-1}); }

/* The logit of "barks" less that of "sleeps" at the third word, of logits [1,T,WORDS]. */
static double barks(tn_tensor *logits)
{
    double z[T][WORDS] = {{0}};
    tn_read(logits, TN_F64, z, T * WORDS);
    return z[2][BARKS] - z[2][SLEEPS];
}
int main(void)
{
    char           why[TN_WHY];
    tn_ctx        *ctx;
    tn_transformer model[2];
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .seed = 1}, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_params *params = tn_params_create(ctx);              /* two models, which begin with other numbers */
    for (int i = 0; i < 2; i++)
        tn_transformer_init(params, i ? "b" : "a", &(tn_transformer_desc){.vocab = WORDS, .layers = 1, .dim = DIM, .heads = 1,
            .context = T, .hidden = 16, .no_norm = true, .init = TN_INIT_NORMAL}, &model[i]);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){.lr = 1e-2, .weight_decay = 0.1});
    for (int step = 0; step < STEPS && tn_ctx_status(ctx) == TN_OK; step++) {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *all = tn_tensor_from(ctx, 2, (int64_t[]){TEXTS, T + 1}, TN_I32, texts);
        tn_tensor *in = tn_slice(all, 1, 0, T), *next = tn_slice(all, 1, 1, T + 1);
        tn_tensor *loss = tn_transformer_loss(ctx, &model[0], in, next), *other = tn_transformer_loss(ctx, &model[1], in, next);
        tn_backward(ctx, tn_add(ctx, loss, other));
        tn_optim_step(optim);
    }

    /* The block as tensors: the word at the adverb, x, and what the head writes when it has read a noun, M y, are multiplied
       by the operator B+. Its interactions say what each pair of words does for "barks" and against "sleeps". */
    tn_circuit_block block;
    double           table[WORDS][WORDS], beside[WORDS], out[3] = {0}, paths = 0;
    tn_tensor *embed = model[0].embed.w, *head = model[0].head.w, *verb = tn_sub(ctx, row(head, BARKS), row(head, SLEEPS));
    tn_circuit_block_of(ctx, &model[0], &(tn_circuit_block_desc){.norm1_scale = 1, .norm2_scale = 1}, &block);
    tn_tensor *x = tn_append_one(ctx, embed), *m = tn_slice(block.m, 0, 1, 2);
    tn_tensor *y = tn_einsum(ctx, "yj,hij->yi", 2, (tn_tensor *[]){x, m});
    tn_read(tn_circuit_rows(ctx, tn_circuit_interactions(ctx, block.b, verb, x, y), 0, WORDS), TN_F64, table[0], WORDS * WORDS);
    printf("for barks      cat      dog\n   often  %7.2f  %7.2f\n", table[OFTEN][CAT], table[OFTEN][DOG]);
    printf("   never  %7.2f  %7.2f\n\n", table[NEVER][CAT], table[NEVER][DOG]);
    for (int g = 0; g < 2; g++) {                           /* B+ with M in one of its inputs: an operator on words */
        tn_tensor *pair[2] = {row(x, g ? DOG : OFTEN), row(x, g ? OFTEN : DOG)};
        tn_tensor *both = tn_cp_apply_each(ctx, tn_circuit_block_term(&block, g, 1 - g), pair);
        out[0] += tn_item(tn_tensordot(ctx, both, 0, verb, 0)) / 2;
    }

    /* What does the MLP look for? Of all vectors of length 1 the one that makes it say "barks" the most is an eigenvector. And
       "dog" in place of "cat" is a vector as well: what it does depends on what it is added to. */
    tn_cp *mlp = tn_cp_fold_out(tn_circuit_mlp(ctx, &model[0], 0), tn_reshape(verb, 2, (int64_t[]){1, DIM}), NULL);
    tn_circuit_maximum most;
    tn_eigenpairs      eigen;
    tn_circuit_maximise(tn_net_from_cp(ctx, mlp), tn_full(ctx, 1, (int64_t[]){1}, 1), NULL, &most);
    tn_cp_eigen_all(mlp, 1, &eigen);
    tn_tensor *brought = tn_slice(tn_sub(ctx, row(y, DOG), row(y, CAT)), 0, 0, DIM);
    tn_tensor *steer = tn_circuit_rows(ctx, tn_circuit_steer(ctx, mlp, brought, NULL), 0, 1);
    tn_read(tn_matmul(ctx, embed, tn_transpose(steer, 0, 1)), TN_F64, beside, WORDS);

    /* One text, "the cat often", is a sum over paths. It changes if the head does not read "cat", and if "dog" is added. */
    tn_circuit_frozen   frozen;
    tn_circuit_steering run;
    tn_tensor *text = tn_tensor_from(ctx, 2, (int64_t[]){1, T}, TN_I32, texts);
    tn_tensor *added = tn_sub(ctx, row(embed, DOG), row(embed, CAT));
    if (tn_circuit_freeze(ctx, &model[0], text, &frozen) == TN_OK) {
        paths = tn_circuit_path_count(&frozen, false), out[1] = barks(frozen.logits);
        tn_assign(tn_slice(tn_slice(frozen.block[0].pattern, 1, 2, 3), 2, 1, 2), tn_full(ctx, 3, (int64_t[]){1, 1, 1}, 0));
        tn_circuit_frozen_update(&frozen);
        out[2] = barks(frozen.logits);
        tn_circuit_frozen_destroy(&frozen);
    }
    tn_circuit_steering_of(ctx, &model[0], text, &(tn_circuit_steering_desc){.point = "embed",
        .edit = {.token = 1, .tokens = 1, .keep = 1, .value = added}}, &run);
    tn_circuit_alignment aligned;                           /* is the other model the same function of the words? */
    tn_circuit_align(ctx, &model[0], &model[1], 0, true, &aligned);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("dog_and_often_by_two_terms: %.2f\n", out[0]);
    printf("largest_answer: %.3f, eigenvalue: %.3f\n", most.value, tn_item(eigen.values));
    printf("dog_for_cat: %.2f beside often, %.2f beside never\n", beside[OFTEN], beside[NEVER]);
    printf("paths: %.0f\nbarks_after_the_cat_often: %.2f, without reading cat: %.2f\n", paths, out[1], out[2]);
    printf("steered: %.2f, predicted: %.2f = %.2f %+.2f %+.2f\n", barks(run.measured), barks(run.frozen),
           barks(tn_slice(run.parts, 0, 0, 1)), barks(tn_slice(run.parts, 0, 1, 2)), barks(tn_slice(run.parts, 0, 2, 3)));
    printf("cosine_with_the_other_model: %.2f\n", aligned.cosine);
    tn_circuit_maximum_destroy(&most);
    tn_circuit_steering_destroy(&run);
    tn_circuit_alignment_destroy(&aligned);
    tn_ctx_destroy(ctx);
    return 0;
}
