// predict.cpp - a model compiled in as bytes, in C++17: predict.c with owners that clean up
//
// make && build/examples/embed/predict_cpp   or   c++ -std=c++17 -O2 -I. examples/embed/predict.cpp -o predict && ./predict
#include <cstdio>
#include <stdexcept>
#include <vector>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "digits.h"
#include "weights.h"

// The context owns all there is; so this is the one wrapper a program needs. Its end frees tensors and parameters too.
struct Context {
    tn_ctx *ctx = nullptr;
    explicit Context(const tn_desc &desc = {}) {
        char why[TN_WHY];
        if (tn_ctx_create(&desc, &ctx, why) != TN_OK) throw std::runtime_error(why);
    }
    ~Context() { tn_ctx_destroy(ctx); }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    void check() const { if (tn_ctx_status(ctx) != TN_OK) throw std::runtime_error(tn_ctx_error(ctx)); }
    operator tn_ctx *() const { return ctx; }
};

class Reader {
public:
    Reader() {
        tn_mlp_desc desc = {};                          // zero means the usual; no designators before C++20
        desc.in = SEGMENTS;
        desc.hidden = HIDDEN;
        desc.out = DIGITS;
        desc.bias = desc.out_bias = true;
        tn_params *params = tn_params_create(ctx);
        tn_mlp_init(params, "digits", &desc, &layer);
        tn_params_read(params, tn_source_memory(weights, sizeof weights), TN_MATCH_ALL);
        ctx.check();
    }
    int read(const float *display) {
        std::int32_t digit = -1;
        tn_mark      mark = tn_arena_mark(ctx);
        tn_tensor   *x = tn_tensor_2d(ctx, TN_REAL, 1, SEGMENTS);
        tn_write(x, TN_F32, display, SEGMENTS);
        tn_read(tn_argmax(ctx, tn_mlp_forward(ctx, &layer, x)), TN_I32, &digit, 1);
        tn_arena_release(ctx, mark);
        ctx.check();
        return digit;
    }
private:
    Context ctx;
    tn_mlp  layer = {};
};

int main() try {
    Reader           reader;
    std::vector<int> answers;
    int              right = 0;
    for (const auto &display : segments_of) answers.push_back(reader.read(display));
    for (int i = 0; i < DIGITS; i++) {
        std::printf("display %d: %d\n", i, answers[static_cast<std::size_t>(i)]);
        right += answers[static_cast<std::size_t>(i)] == i;
    }
    std::printf("\ndigits_right: %d\n", right);
    return right == DIGITS ? 0 : 1;
} catch (const std::exception &e) {
    std::fprintf(stderr, "predict: %s\n", e.what());
    return 1;
}
