/* game_loop.c - a network that learns from play, inside the frame of a game: no allocation, some microseconds per frame

   cc -O2 -I. examples/game_loop.c -o game_loop -lm && ./game_loop

   A hunter moves one step per frame on a board of 16 x 16 fields whose opposite edges are connected; the prey that it
   catches appears elsewhere. It sees in which of eight directions its prey is, and has four moves. An 8-16-4 network
   predicts for each move whether it brings the hunter nearer, +1, or not, -1. The best move is made, now and then a random
   one; then the network learns from the last 16 frames. What a game needs to know: how long this takes, and that after the
   first frames no memory is allocated. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { BOARD = 16, SEES = 8, MOVES = 4, MEMORY = 16, WARM = 100, HEAD = 50, FRAMES = 4000, TAIL = 1000, TIMED = 20000 };

static float see[MEMORY][SEES], made[MEMORY][MOVES], went[MEMORY][MOVES];     /* the last frames */
static const int dx[MOVES] = {1, 0, -1, 0}, dy[MOVES] = {0, 1, 0, -1};

/* How far from a to b around the board: -8 ... 7. */
static int way(int a, int b) { return (b - a + BOARD + BOARD / 2) % BOARD - BOARD / 2; }

static uint32_t below(uint32_t n)                           /* a random number from 0 to n - 1 */
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % n;
}

static void look(float eye[SEES], int x, int y)             /* which way the prey is, in zeros and ones */
{
    const int there[SEES] = {x > 0, x < 0, y > 0, y < 0, x > 0 && y == 0, x < 0 && y == 0, x == 0 && y > 0, x == 0 && y < 0};
    for (int i = 0; i < SEES; i++) eye[i] = (float)there[i];
}

static int best_move(tn_ctx *ctx, const tn_mlp *net, const float eye[SEES])
{
    int32_t    move = 0;
    tn_mark    mark = tn_arena_mark(ctx);
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 1, SEES);
    tn_write(x, TN_F32, eye, SEES);
    tn_read(tn_argmax(ctx, tn_mlp_forward(ctx, net, x)), TN_I32, &move, 1);
    tn_arena_release(ctx, mark);                            /* gives back what the prediction used */
    return move;
}

/* One step of the optimiser. Only the moves that were made have a known outcome: `made` is 1 for them and 0 for others. */
static bool learn(tn_ctx *ctx, const tn_mlp *net, tn_optim *optim)
{
    tn_ctx_reset(ctx);
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, MEMORY, SEES), *mask = tn_tensor_2d(ctx, TN_REAL, MEMORY, MOVES);
    tn_tensor *y = tn_tensor_2d(ctx, TN_REAL, MEMORY, MOVES);
    tn_write(x, TN_F32, see, MEMORY * SEES);
    tn_write(mask, TN_F32, made, MEMORY * MOVES);
    tn_write(y, TN_F32, went, MEMORY * MOVES);
    tn_record(ctx);
    tn_backward(ctx, tn_mse(ctx, tn_mul(ctx, mask, tn_mlp_forward(ctx, net, x)), y));
    return tn_optim_step(optim) == TN_OK;
}

int main(void)
{
    char     why[TN_WHY];
    int      x = 0, y = 0, prey_x = 5, prey_y = 9, nearer = 0, nearer_at_first = 0, sum = 0;
    uint64_t allocations = 0;
    tn_ctx  *ctx;
    tn_mlp   net;
    if (tn_ctx_create(&(tn_desc){ .threads = 1, .seed = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "hunter", &(tn_mlp_desc){ .in = SEES, .hidden = 16, .out = MOVES,
        .bias = true, .out_bias = true }, &net);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 1e-2 });
    clock_t start = clock();
    for (int frame = 0; frame < FRAMES; frame++) {
        int i = frame % MEMORY, before = abs(way(x, prey_x)) + abs(way(y, prey_y));
        look(see[i], way(x, prey_x), way(y, prey_y));
        int move = below(10) == 0 ? (int)below(MOVES) : best_move(ctx, &net, see[i]);
        x = (x + dx[move] + BOARD) % BOARD;
        y = (y + dy[move] + BOARD) % BOARD;
        int after = abs(way(x, prey_x)) + abs(way(y, prey_y));
        for (int m = 0; m < MOVES; m++) made[i][m] = went[i][m] = 0;
        made[i][move] = 1;
        went[i][move] = after < before ? 1.0f : -1.0f;
        if (frame < HEAD) nearer_at_first += after < before;
        if (frame >= FRAMES - TAIL) nearer += after < before;
        while (x == prey_x && y == prey_y) prey_x = (int)below(BOARD), prey_y = (int)below(BOARD);
        if (!learn(ctx, &net, optim)) break;
        if (frame == WARM) allocations = tn_ctx_memory(ctx).allocations;
    }
    double  learning = (double)(clock() - start) / CLOCKS_PER_SEC / FRAMES * 1e6;
    clock_t again = clock();
    for (int i = 0; i < TIMED; i++) sum += best_move(ctx, &net, see[i % MEMORY]);
    double  predicting = (double)(clock() - again) / CLOCKS_PER_SEC / TIMED * 1e6;
    if (tn_ctx_status(ctx) != TN_OK || sum < 0) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("microseconds_per_prediction: %.2f\nmicroseconds_per_frame_with_learning: %.2f\n", predicting, learning);
    printf("allocations_after_warm_up: %d\n", (int)(tn_ctx_memory(ctx).allocations - allocations));
    printf("nearer_at_first: %.2f\nnearer_at_last: %.2f\n", nearer_at_first / (double)HEAD, nearer / (double)TAIL);
    tn_ctx_destroy(ctx);
    return 0;
}
