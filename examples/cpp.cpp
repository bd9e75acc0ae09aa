// cpp.cpp - tensornet.h from C++17: owners that clean up, errors as exceptions, descs without designators
//
// c++ -std=c++17 -O2 -I. examples/cpp.cpp -o cpp && ./cpp
//
// The header is C and C++ at once. What differs: a desc is zeroed first and its fields are set by name, because C++ before
// C++20 has no designators, and a std::unique_ptr can own a context, which owns all the rest. The network learns to add two
// digits and name the last digit of the sum: an embedding of digits, a norm, and a bilinear layer, which can multiply.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

using Context = std::unique_ptr<tn_ctx, decltype(&tn_ctx_destroy)>;

static Context make_context(const tn_desc &desc) {
    char    why[TN_WHY];
    tn_ctx *ctx = nullptr;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) throw std::runtime_error(why);
    return Context(ctx, tn_ctx_destroy);
}

static void check(tn_ctx *ctx) {
    if (tn_ctx_status(ctx) != TN_OK) throw std::runtime_error(tn_ctx_error(ctx));
}

class Adder {
public:
    explicit Adder(tn_ctx *context) : ctx(context), params(tn_params_create(context)) {
        tn_embedding_desc digits = {};
        digits.count = 10;
        digits.dim = 16;
        tn_embedding_init(params, "digit", &digits, &embed);
        tn_norm_desc both = {};
        both.dim = 32;
        tn_norm_init(params, "norm", &both, &norm);
        tn_mlp_desc layer = {};
        layer.in = 32;
        layer.hidden = 64;
        layer.out = 10;
        tn_mlp_init(params, "mlp", &layer, &mlp);
        check(ctx);
    }
    tn_tensor *operator()(tn_tensor *pairs) const {                         // I32 [n,2] -> [n,10]
        tn_tensor *x = tn_embedding_forward(ctx, &embed, pairs);            // [n,2,16]
        x = tn_reshape_2d(x, -1, 32);
        return tn_mlp_forward(ctx, &mlp, tn_norm_forward(ctx, &norm, x));
    }
    tn_params *parameters() const { return params; }
private:
    tn_ctx      *ctx;
    tn_params   *params;                                                    // owned by the context, as all tensors are
    tn_embedding embed = {};
    tn_norm      norm = {};
    tn_mlp       mlp = {};
};

int main() try {
    tn_desc desc = {};
    desc.seed = 1;
    const Context context = make_context(desc);
    tn_ctx       *ctx = context.get();
    const Adder   adder(ctx);
    tn_optim_desc adam = {};
    adam.lr = 1e-2;
    tn_optim *optim = tn_optim_create(adder.parameters(), &adam);

    std::vector<std::int32_t> pairs, sums;
    for (int a = 0; a < 10; a++)
        for (int b = 0; b < 10; b++) {
            pairs.insert(pairs.end(), {a, b});
            sums.push_back((a + b) % 10);
        }
    double accuracy = 0;
    for (int step = 1; step <= 200; step++) {
        tn_ctx_reset(ctx);
        tn_tensor *x = tn_tensor_2d(ctx, TN_I32, 100, 2), *y = tn_tensor_1d(ctx, TN_I32, 100);
        tn_write(x, TN_I32, pairs.data(), 200);
        tn_write(y, TN_I32, sums.data(), 100);
        tn_record(ctx);
        tn_tensor *logits = adder(x), *loss = tn_cross_entropy(ctx, logits, y);
        tn_backward(ctx, loss);
        tn_optim_step(optim);
        check(ctx);
        accuracy = tn_item(tn_accuracy(ctx, logits, y));
        if (step % 50 == 0) std::printf("step %3d  loss %.4f  accuracy %.2f\n", step, tn_item(loss), accuracy);
    }
    std::int32_t answer = 0;
    tn_tensor   *question = tn_tensor_2d(ctx, TN_I32, 1, 2);
    tn_write(question, TN_I32, std::vector<std::int32_t>{7, 8}.data(), 2);
    tn_read(tn_argmax(ctx, adder(question)), TN_I32, &answer, 1);
    check(ctx);
    std::printf("\nlast_digit_of_7_plus_8: %d\naccuracy: %.2f\n", static_cast<int>(answer), accuracy);
} catch (const std::exception &e) {
    std::fprintf(stderr, "cpp: %s\n", e.what());
    return 1;
}
