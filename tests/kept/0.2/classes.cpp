// A C++ program: descs without designators, an owner that cleans up, errors as exceptions.
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>
#include "tensornet.h"

using Context = std::unique_ptr<tn_ctx, decltype(&tn_ctx_destroy)>;

static Context open_context(const tn_desc &desc)
{
    char    why[TN_WHY];
    tn_ctx *ctx = nullptr;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) throw std::runtime_error(why);
    return Context(ctx, tn_ctx_destroy);
}

class Classifier {
public:
    explicit Classifier(tn_ctx *context) : ctx(context), params(tn_params_create(context))
    {
        tn_mlp_desc desc = {};
        desc.in = 2;
        desc.hidden = 8;
        desc.out = 2;
        desc.kind = TN_MLP_SWIGLU;
        desc.bias = desc.out_bias = true;
        if (tn_mlp_init(params, "mlp", &desc, &mlp) != TN_OK) throw std::runtime_error(tn_ctx_error(ctx));
        tn_optim_desc rule = {};
        rule.lr = 0.02;
        optim = tn_optim_create(params, &rule);
    }
    double step(const std::vector<float> &points, const std::vector<int32_t> &labels)
    {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *loss = tn_cross_entropy(ctx, forward(points), tensor(labels));
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) throw std::runtime_error(tn_ctx_error(ctx));
        return tn_item(loss);
    }
    double accuracy(const std::vector<float> &points, const std::vector<int32_t> &labels)
    {
        return tn_item(tn_accuracy(ctx, forward(points), tensor(labels)));
    }

private:
    tn_tensor *forward(const std::vector<float> &points)
    {
        const int64_t shape[] = {(int64_t)points.size() / 2, 2};
        return tn_mlp_forward(ctx, &mlp, tn_tensor_from(ctx, 2, shape, TN_F32, points.data()));
    }
    tn_tensor *tensor(const std::vector<int32_t> &labels)
    {
        const int64_t shape[] = {(int64_t)labels.size()};
        return tn_tensor_from(ctx, 1, shape, TN_I32, labels.data());
    }
    tn_ctx    *ctx;
    tn_params *params;
    tn_mlp     mlp;
    tn_optim  *optim;
};

int main()
{
    try {
        tn_desc desc = {};
        desc.seed = 1;
        desc.threads = 1;
        Context              ctx = open_context(desc);
        Classifier           inside(ctx.get());
        std::vector<float>   points;
        std::vector<int32_t> labels;
        for (int i = 0; i < 100; i++) {
            const float x = float(i % 10) / 5 - 0.9f, y = float(i / 10) / 5 - 0.9f;
            points.insert(points.end(), {x, y});
            labels.push_back(x * x + y * y < 0.6f);
        }
        const double before = inside.step(points, labels);
        double       loss = before;
        for (int step = 0; step < 300; step++) loss = inside.step(points, labels);
        const double share = inside.accuracy(points, labels);
        std::printf("loss %.3f, then %.3f; %.0f %% of the points are classified correctly\n", before, loss, 100 * share);
        return !(before < 1.5 && loss < 0.2 && share > 0.95);
    } catch (const std::exception &error) {
        std::printf("FAIL %s\n", error.what());
        return 1;
    }
}
