/* test_cuda_nccl.c: processes that train together (processes.h) by NCCL, each with a GPU of its own: examples/comm/nccl.c with
   tensornet_cuda.cu on the engine of tests/cuda_host, and a driver and an NCCL that are made up (tests/nccl). So it says
   nothing about NCCL; it tests what the carrier makes of it. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE
#define STEPS 12
#include "examples/comm/nccl.c"
#include "processes.h"
#include "../tools/tn/dry.c"
#include "control.h"

/* By the variables of a launcher, as torchrun sets them; the port is the test's own. */
static bool    by_file, computes_nothing;
static tn_comm nobody;
static tn_comm *open_carrier(job *j, char why[TN_WHY])
{
    char text[64];
    int  rank, size;
    nobody = dry_comm(j->size);
    if (computes_nothing) return &nobody;
    snprintf(text, sizeof text, "%d", j->rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", j->size);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "%d", 20000 + (int)getppid() % 20000);
    setenv("MASTER_PORT", text, 1);
    setenv("TNFN_TMP", j->folder, 1);
    if (by_file) {
        char path[64];
        snprintf(path, sizeof path, "%s/place", j->folder);
        setenv("TN_COMM_FILE", path, 1);
    }
    if (!comm_launcher(&rank, &size, why)) return NULL;
    return comm_nccl(rank, size, rank, why);
}

static const tn_backend *backend_of(const job *j)
{
    (void)j;
    return computes_nothing ? dry_backend() : tn_cuda_backend();
}

/* Whether processes of this machine can call each other: a root without interfaces has no 127.0.0.1. */
static bool loopback(void)
{
    struct sockaddr_in at;
    socklen_t          bytes = sizeof at;
    const int          listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool good = bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0
        && getsockname(listener, (struct sockaddr *)&at, &bytes) == 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (listener >= 0) close(listener);
    if (fd >= 0) close(fd);
    return good;
}

#define NEED_LOOPBACK() do { if (!loopback()) SKIP("loopback", "no interface has 127.0.0.1"); } while (0)

static bool resolves(const char *name)
{
    struct addrinfo *all = NULL;
    const bool       found = getaddrinfo(name, NULL, NULL, &all) == 0;
    if (found) freeaddrinfo(all);
    return found;
}

TEST(collectives_of_whole_numbers)
{
    NEED_LOOPBACK();
    whole_numbers = true;
    for (int size = 1; size <= 4; size++) CHECK_INT(processes(size, 0, NULL, collectives), 0);
    by_file = true;
    CHECK_INT(processes(3, 0, NULL, collectives), 0);
    by_file = false;
}

/* ---- how they meet ---- */

/* A file of an earlier run; one that listens at the port and does not answer, as torchrun's store may; a name; one that has
   called before, and did not wait for the answer; two jobs of two processes at one port, with a secret each. */
enum { OLD_FILE, PORT_TAKEN, LOCALHOST, GIVEN_UP, STRANGERS, SECRET, EMPTY_FILE, TWO_JOBS };

/* So many connections that are silent, or say less than a hello. They stay. */
static bool comes_after_strangers(const job *j)
{
    struct sockaddr_in at = ZERO;
    int                tries = 0;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((unsigned short)(20000 + (int)getppid() % 20000));
    for (int i = 0; i < 40 && j->rank == 1; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        for (; connect(fd, (struct sockaddr *)&at, sizeof at) != 0; sleep_for(0.05), tries++)
            if (tries > 1000) return false;
        if (i % 2) sends(fd, "GET", 3);
    }
    return true;
}

/* Says hello to the first process, and goes away before that can answer. */
static bool gives_up(const job *j)
{
    struct sockaddr_in at = ZERO;
    hello              h = ZERO;
    int                fd = -1;
    bool               called = false;
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((unsigned short)(20000 + (int)getppid() % 20000));
    h.word = MEET ^ comm_job();
    h.rank = j->rank;
    h.size = j->size;
    for (int tries = 0; tries < 200 && !called; tries++, sleep_for(0.05)) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        called = connect(fd, (struct sockaddr *)&at, sizeof at) == 0 && send(fd, &h, sizeof h, MSG_NOSIGNAL) == (ssize_t)sizeof h;
        close(fd);
    }
    return called;
}

static bool meets(job *j)
{
    const int64_t one = 1;
    if (j->kind == LOCALHOST) setenv("MASTER_ADDR", "localhost", 1);
    if (j->kind == OLD_FILE) by_file = true;
    if (j->kind == OLD_FILE && j->rank == 0) sleep_for(0.3);          /* the others read the old one first */
    if (j->kind == GIVEN_UP && j->rank == 1 && !gives_up(j)) return false;
    if (j->kind == STRANGERS && !comes_after_strangers(j)) return false;
    if (j->kind == SECRET) setenv("TN_COMM_SECRET", "the secret of the three", 1);
    if (j->kind == EMPTY_FILE) setenv("TN_COMM_FILE", "", 1);
    if (j->kind == TWO_JOBS) {
        setenv("TN_COMM_SECRET", j->rank < 2 ? "the secret of one job" : "the secret of the other", 1);
        j->rank %= 2;
        j->size = 2;
    }
    if (!open_job(j, TN_F32)) return false;
    double sum = j->rank + 1;
    tn_tensor *t = tn_tensor_create(j->ctx, TN_F32, 1, &one);
    bool good = tn_write(t, TN_F64, &sum, 1) == TN_OK && tn_comm_all_reduce(t) == TN_OK && tn_read(t, TN_F64, &sum, 1) == TN_OK
        && sum == j->size * (j->size + 1) / 2;
    if (!good) printf("rank %d of %d: sum %g: %s\n", j->rank, j->size, sum, tn_ctx_error(j->ctx));
    return close_job(j, good);
}

TEST(processes_find_each_other)
{
    place p = ZERO;
    NEED_LOOPBACK();
    p.port = 20000 + (int)getpid() % 20000;
    p.ports = 1;
    int taken = listen_for(&p, 4);
    CHECK(taken >= 0);
    setenv("TN_COMM_SECONDS", "20", 1);                      /* so that an answer is waited for one second, not five */
    CHECK_INT(processes(3, PORT_TAKEN, NULL, meets), 0);
    close(taken);
    if (!test_leave_out(!resolves("localhost"), "meeting at localhost, a name that this system does not know"))
        CHECK_INT(processes(2, LOCALHOST, NULL, meets), 0);
    CHECK_INT(processes(4, PORT_TAKEN, NULL, meets), 0);
    CHECK_INT(processes(3, GIVEN_UP, NULL, meets), 0);
    setenv("TN_COMM_SECONDS", "40", 1);                      /* two seconds for each of them would take longer */
    CHECK_INT(processes(3, STRANGERS, NULL, meets), 0);
    setenv("TN_COMM_SECONDS", "20", 1);
    CHECK_INT(processes(3, SECRET, NULL, meets), 0);
    CHECK_INT(processes(2, EMPTY_FILE, NULL, meets), 0);
    CHECK_INT(processes(4, TWO_JOBS, NULL, meets), 0);
    unsetenv("TN_COMM_SECONDS");
}

/* The processes of one user meet through a regular file of this user, and no other file is written, read or removed. */
TEST(a_file_is_that_of_this_user)
{
    char folder[] = "/tmp/tn-test-XXXXXX", path[64], part[80], victim[64], why[TN_WHY] = "";
    const char *const refused = "is not a regular file that only this user can write";
    struct stat s;
    place       p = ZERO, q;
    REQUIRE(CHECK(mkdtemp(folder) != NULL));
    p.word = 7, p.port = 8, p.count = 1;
    snprintf(p.address[0], sizeof p.address[0], "127.0.0.1");
    snprintf(path, sizeof path, "%s/place", folder);
    snprintf(part, sizeof part, "%s.part", path);
    snprintf(victim, sizeof victim, "%s/victim", folder);
    REQUIRE(CHECK(close(open(victim, O_WRONLY | O_CREAT, 0600)) == 0));
    CHECK(symlink(victim, path) == 0 && symlink(victim, part) == 0);
    CHECK(!read_place(&q, path, why) && strstr(why, refused));
    CHECK(write_place(&p, path));                           /* in place of the link */
    CHECK(stat(victim, &s) == 0 && s.st_size == 0);
    CHECK(read_place(&q, path, why) && q.word == 7 && q.port == 8 && !strcmp(q.address[0], "127.0.0.1"));
    CHECK(chmod(path, 0620) == 0 && !read_place(&q, path, why) && strstr(why, refused));
    CHECK(chmod(path, 0600) == 0 && read_place(&q, path, why));
    if (!test_leave_out(geteuid() != 0 || chown(path, 12345, (gid_t)-1) != 0, "a file of another user"))
        CHECK(!read_place(&q, path, why) && strstr(why, refused));
    CHECK(remove(path) == 0 && mkfifo(path, 0600) == 0);
    alarm(20);
    why[0] = 0;
    CHECK(!read_place(&q, path, why) && strstr(why, refused));           /* and does not wait for its other end */
    alarm(0);
    CHECK(remove(path) == 0 && mkdir(path, 0700) == 0);
    CHECK(!write_place(&p, path) && errno == EISDIR);
    CHECK(rmdir(path) == 0 && remove(part) == 0 && remove(victim) == 0 && rmdir(folder) == 0);       /* nothing is left */
}

/* What the first process cannot write it does not remove either: here an empty folder. */
static bool has_a_folder_as_file(job *j)
{
    char why[TN_WHY] = "", path[64];
    snprintf(path, sizeof path, "%s/place", j->folder);
    by_file = true;
    j->size = 2;
    bool good = mkdir(path, 0700) == 0 && !open_carrier(j, why) && strstr(why, "TN_COMM_FILE") && strstr(why, strerror(EISDIR));
    if (!good) printf("%s\n", why);
    return rmdir(path) == 0 && good;
}

TEST(only_what_was_written_is_removed) { CHECK_INT(processes(1, 0, NULL, has_a_folder_as_file), 0); }

/* Three listeners that say nothing: after TN_COMM_SECONDS the next ports are not tried. */
TEST(the_limit_is_for_all_ports)
{
    const double since = seconds_now();
    char         why[TN_WHY] = "";
    carrier      c = ZERO;
    place        p = ZERO;
    nccl_id      id;
    int          fd[3];
    NEED_LOOPBACK();
    c.seconds = 1, c.comm.rank = 1, c.comm.size = 2;
    p.port = 20000 + (int)getpid() % 20000;
    p.count = p.ports = 1;
    snprintf(p.address[0], sizeof p.address[0], "127.0.0.1");
    for (int i = 0; i < 3; i++, p.port++) fd[i] = listen_for(&p, 2);
    p.port -= 3;
    p.ports = 3;
    CHECK(!call_first(&c, &p, NULL, &id, why));
    CHECK(seconds_now() - since < 4);
    for (int i = 0; i < 3; i++) close(fd[i]);
}

/* Where they meet, by the environment: for this machine alone unless MASTER_ADDR or a file says more. */
TEST(places_are_read_strictly)
{
    static const char *const ports[] = {"abc", "70000", "0", "-1", "29500 ", "4e3"};
    static const struct { const char *address, *file; bool here; } places[] = {{NULL, NULL, true}, {"", NULL, true},
        {"localhost", NULL, true}, {"LOCALHOST", NULL, true}, {"localhost.", NULL, true}, {"ip6-localhost", NULL, true},
        {"127.0.0.1", NULL, true}, {"127.0.0.1", "f", true}, {"127.1", NULL, true}, {"2130706433", NULL, true},
        {"::1", NULL, true}, {"0:0:0:0:0:0:0:1", NULL, true}, {"::ffff:127.0.0.1", NULL, true},
        {"10.1.2.3", NULL, false}, {"::ffff:10.1.2.3", NULL, false}, {NULL, "f", false}};
    char    why[TN_WHY], text[TN_WHY];
    carrier c = ZERO;
    place   p;
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        setenv("MASTER_PORT", ports[i], 1);
        CHECK(!find_place(&c, &p, NULL, why));
        snprintf(text, sizeof text, "MASTER_PORT is \"%s\", expected a whole number from 1 to 65535", ports[i]);
        CHECK_STR(why, text);
    }
    setenv("MASTER_PORT", "65534", 1);
    CHECK(find_place(&c, &p, NULL, why));
    CHECK_INT(p.ports, 2);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct sockaddr_in6 at;
        socklen_t           bytes = sizeof at;
        const bool          known = !places[i].address || !*places[i].address || resolves(places[i].address);
        if (test_leave_out(!known && strcmp(places[i].address, "localhost."), "names that this system does not know")) continue;
        if (places[i].address) setenv("MASTER_ADDR", places[i].address, 1);
        else unsetenv("MASTER_ADDR");
        if (!known) {                                       /* then nobody listens, rather than for all */
            CHECK(!find_place(&c, &p, NULL, why));
            CHECK_STR(why, "MASTER_ADDR is \"localhost.\", which this machine cannot resolve");
            continue;
        }
        CHECK(find_place(&c, &p, places[i].file, why));
        if (!CHECK(p.here == places[i].here)) printf("%s\n", places[i].address);
        p.port = 0;
        int fd = listen_for(&p, 2);
        memset(&at, 0, sizeof at);
        if (test_leave_out(fd < 0 && p.here && strchr(p.address[0], ':'), "listening at ::1, which no interface has")) continue;
        CHECK(fd >= 0 && getsockname(fd, (struct sockaddr *)&at, &bytes) == 0);
        if (!CHECK(is_loopback((struct sockaddr *)&at) == places[i].here)) printf("%s\n", places[i].address);
        close(fd);
    }
    unsetenv("MASTER_PORT");
    unsetenv("MASTER_ADDR");
}

/* Rank 1 has another secret, or none: that is what it says in the end, and it is not accepted. */
static bool has_another_secret(job *j)
{
    char    why[TN_WHY] = "";
    carrier c = ZERO;
    place   p;
    nccl_id id = ZERO;
    int     link[2] = {-1, -1};
    char    text[TN_WHY];
    bool    found = false;
    const double until = seconds_now() + 100;
    c.comm.rank = j->rank, c.comm.size = 2, c.link = link, c.culprit = -1;
    setenv("TN_COMM_SECRET", j->rank == 0 ? "the secret of rank 0" : j->kind ? "the secret of rank 1" : "", 1);
    c.seconds = 100;
    if (!find_place(&c, &p, NULL, why)) return false;
    p.port = 20000 + (int)getppid() % 20000;
    if (j->rank == 0) {
        entrance d;
        open_entrance(&d, listen_for(&p, 2), sizeof(hello), sizeof(uint64_t));
        while (((volatile shared *)j->all)->sent[1] == 0 && seconds_now() < until) {
            caller *g = poll_callers(&d);
            if (g && answer(&c, &p, g, &id)) return false;
        }
        close_entrance(&d);
        return j->all->sent[1] == 1;
    }
    for (c.seconds = 1; !why[0] && until > seconds_now(); ) found = found || call_first(&c, &p, NULL, &id, why);
    j->all->sent[1] = found ? 2 : 1;
    snprintf(text, sizeof text, "rank 1 of 2: the others were not found within 1 s: what listens at 127.0.0.1, port %d, gives a "
             "wrong proof, expected the same TN_COMM_SECRET for all, which is %s here", p.port, j->kind ? "set" : "not set");
    if (strcmp(why, text) != 0) printf("%s\n", why);
    return strcmp(why, text) == 0;
}

TEST(a_secret_has_to_be_the_same)
{
    static const unsigned char bytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const uint64_t      key[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    shared *all = share();
    CHECK(sip_hash(key, bytes, 15) == UINT64_C(0xa129ca6149be45e5));     /* of the paper, appendix A */
    for (int kind = 0; kind < 2; kind++) {
        all->sent[1] = 0;
        CHECK_INT(processes(2, kind, all, has_another_secret), 0);
    }
    munmap(all, sizeof *all);
}

TEST(a_short_secret_is_refused)
{
    char    why[TN_WHY] = "";
    carrier c = ZERO;
    place   p;
    setenv("TN_COMM_SECRET", "123456789012345", 1);
    CHECK(!find_place(&c, &p, NULL, why));
    CHECK_STR(why, "TN_COMM_SECRET has 15 characters, expected at least 16, and random ones");
    setenv("TN_COMM_SECRET", "1234567890123456", 1);
    CHECK(find_place(&c, &p, NULL, why));
    unsetenv("TN_COMM_SECRET");
}

static bool meets_by_an_old_file(job *j)
{
    char  path[64];
    place p = ZERO;
    p.word = 77;
    p.port = 20000 + (int)getppid() % 20000;
    p.count = 1;
    snprintf(p.address[0], sizeof p.address[0], "127.0.0.1");
    snprintf(path, sizeof path, "%s/place", j->folder);
    if (j->rank == 1) write_place(&p, path);
    j->kind = OLD_FILE;
    return meets(j);
}

TEST(a_file_of_an_earlier_run_is_passed_over)
{
    place p;
    NEED_LOOPBACK();
    setenv("TN_COMM_SECONDS", "20", 1);
    CHECK_INT(processes(3, 0, NULL, meets_by_an_old_file), 0);
    memset(&p, 0, sizeof p);                                 /* and where it points, something else listens now */
    p.port = 20000 + (int)getpid() % 20000;
    p.ports = 1;
    int taken = listen_for(&p, 4);
    CHECK_INT(processes(2, 0, NULL, meets_by_an_old_file), 0);
    unsetenv("TN_COMM_SECONDS");
    close(taken);
}

/* ---- training ---- */

TEST(curves_do_not_depend_on_the_number_of_gpus)
{
    static const int kinds[] = {ADAMW, MUON, PARTS | OVERLAP, ADAMW | SHARED | OVERLAP, MUON | SHARED};
    shared *one = share(), *all = share();
    double  worst = 0;
    NEED_LOOPBACK();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        CHECK_INT(processes(1, kinds[k] & 7, one, trains), 0);
        for (int size = 2; size <= 4; size += 2) {
            if (size == 4 && ((kinds[k] & 7) == PARTS || (test_small() && k > 0))) continue;        /* PARTS: six texts */
            memset(all, 0, sizeof *all);
            CHECK_INT(processes(size, kinds[k], all, trains), 0);
            for (int r = 0; r < size; r++)
                for (int i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[r][i] / one->loss[0][i] - 1));
            for (int r = 1; r < size; r++) CHECK(memcmp(all->params[r], all->params[0], sizeof *all->params) == 0);
        }
    }
    WORST("losses of 2 and 4 GPUs against one", worst, 1e-12);
    munmap(one, sizeof *one);
    munmap(all, sizeof *all);
}

TEST(moments_are_saved_from_all_gpus)
{
    shared *one = share(), *all = share();
    double  worst = 0;
    char    file[64];
    NEED_LOOPBACK();
    snprintf(file, sizeof file, "/tmp/tn-test-%d.safetensors", (int)getpid());
    for (int kind = ADAMW; kind <= MUON; kind++) {
        CHECK_INT(processes(1, kind, one, trains), 0);
        memset(all, 0, sizeof *all);
        CHECK_INT(processes(3, kind | SHARED | SAVED, all, trains), 0);
        for (int i = 0; i < STEPS; i++) test_raise(&worst, fabs(all->loss[2][i] / one->loss[0][i] - 1));
        memset(all, 0, sizeof *all);
        CHECK_INT(processes(2, kind | SHARED | RESUMED, all, trains), 0);
        for (int i = STEPS / 2; i < STEPS; i++) test_raise(&worst, fabs(all->loss[1][i] / one->loss[0][i] - 1));
    }
    remove(file);
    WORST("losses saved by three GPUs and resumed by two, against one", worst, 1e-12);
    munmap(one, sizeof *one);
    munmap(all, sizeof *all);
}

/* The most memory of three steps, or 0. */
static size_t peak_of(job *j)
{
    enum { T = 48 };
    const int64_t       texts = 12 / j->size;
    tn_transformer_desc d = tiny();
    tn_optim_desc       od = ZERO;
    tn_transformer      m;
    tn_optim           *optim;
    int32_t             ids[12 * T] = {0};
    d.dim = 64;
    d.hidden = 96;
    d.context = T;
    d.vocab = 300;
    d.recompute = (j->kind & PARTS) != 0;
    od.kind = j->kind & MUON ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
    od.share_moments = (j->kind & SHARED) != 0;
    j->bf16 = (j->kind & TIED) == 0;
    if (!open_job(j, TN_F32)) return 0;
    tn_params *params = tn_params_create(j->ctx);
    bool good = tn_transformer_init(params, "", &d, &m) == TN_OK && (optim = tn_optim_create(params, &od)) != NULL;
    for (int step = 0; step < 3 && good; step++) {
        tn_ctx_reset(j->ctx);
        tn_tensor *x = tn_tensor_2d(j->ctx, TN_I32, texts, T);
        tn_write(x, TN_I32, ids, texts * T);
        tn_record(j->ctx);
        x = tn_transformer_loss(j->ctx, &m, x, x);
        if (j->kind & OVERLAP) tn_optim_overlap(optim);
        good = tn_backward(j->ctx, x) == TN_OK && tn_optim_step(optim) == TN_OK;
    }
    size_t peak = good ? tn_ctx_memory(j->ctx).peak : 0;
    if (!good) printf("rank %d: %s\n", j->rank, tn_ctx_error(j->ctx));
    tn_ctx_destroy(j->ctx);
    if (!computes_nothing) j->comm->close(j->comm, false);
    return peak;
}

static bool measures(job *j)
{
    const double real = (double)peak_of(j);
    computes_nothing = true;
    double dry = (double)peak_of(j);
    if (j->rank > 0) return real > 0;
    if (!(fabs(dry / real - 1) < 0.02)) printf("%d processes, kind %d: %g bytes, dry %g\n", j->size, j->kind, real, dry);
    return fabs(dry / real - 1) < 0.02;
}

/* What tn info --plan says of the memory of a GPU. */
TEST(a_dry_step_needs_the_memory_of_a_real_one)
{
    static const int kinds[] = {ADAMW | TIED, ADAMW, MUON, ADAMW | SHARED, MUON | SHARED | OVERLAP, PARTS | OVERLAP};
    NEED_LOOPBACK();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int size = 1; size <= 4; size++)
            if (size != 3 && (size < 4 || !test_small())) CHECK_INT(processes(size, kinds[k], NULL, measures), 0);
}

/* ---- one that ends ends the others ---- */

static bool told(job *j)
{
    const bool good = trains(j);
    if (!good) printf("rank %d: %s\n", j->rank, j->all->said[j->rank]);
    return good;
}

/* All end, and the message of each other one names rank `culprit`, with `how`. */
static void check_ends(int size, int kind, int culprit, const char *how)
{
    shared *all = share();
    char    text[64];
    snprintf(text, sizeof text, "rank %d%s", culprit, how);
    CHECK_INT(processes(size, kind, all, told), (1u << size) - 1);
    for (int r = 0; r < size; r++)
        if (r != culprit && !CHECK(strstr(all->said[r], text) != NULL)) printf("rank %d says: %s\n", r, all->said[r]);
    munmap(all, sizeof *all);
}

TEST(the_end_of_a_process_ends_the_others)
{
    uint64_t seed = 5;
    char     text[32];
    NEED_LOOPBACK();
    for (int i = 0; i < (test_small() ? 6 : 12); i++) {
        const int size = 2 + i % 3, victim = (int)test_random_int(&seed, 0, size - 1);
        if (i < 3) snprintf(text, sizeof text, "%d:init", victim);
        else snprintf(text, sizeof text, "%d:call:%d", victim, (int)test_random_int(&seed, 1, 30));
        setenv("TNFN_DIES", text, 1);
        if (i % 2) setenv("TNFN_SILENT", "1", 1);            /* NCCL does not notice */
        else unsetenv("TNFN_SILENT");
        check_ends(size, i % 4 == 0 ? ADAMW | SHARED : ADAMW | OVERLAP, victim, " has ended");
    }
    unsetenv("TNFN_DIES");
    unsetenv("TNFN_SILENT");
}

TEST(an_error_of_a_gpu_ends_the_others)
{
    static const char *const what[] = {"1:gpu", "2:init", "1:call", "0:init", "0:id", "0:call"};
    NEED_LOOPBACK();
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        setenv("TNFN_WRONG", what[i], 1);
        check_ends(3, ADAMW, atoi(what[i]), " has ");
    }
    unsetenv("TNFN_WRONG");
}

/* Rank 1 needs no more; the others do. */
static bool leaves(job *j)
{
    const int64_t one = 1;
    if (!open_job(j, TN_F32)) return false;
    tn_tensor *t = tn_tensor_create(j->ctx, TN_F32, 1, &one);
    if (j->rank != 1) {
        if (tn_comm_all_reduce(t) == TN_ERR_COMM && tn_comm_all_reduce(t) == TN_ERR_COMM)
            snprintf(j->all->said[j->rank], sizeof j->all->said[0], "%s", tn_ctx_error(j->ctx));
    } else tn_tensor_destroy(t);
    return close_job(j, true);
}

TEST(nobody_waits_for_a_process_that_has_finished)
{
    shared *all = share();
    NEED_LOOPBACK();
    setenv("TN_COMM_SECONDS", "20", 1);                      /* then a second for its last words, not five */
    CHECK_INT(processes(3, 0, all, leaves), 0);
    unsetenv("TN_COMM_SECONDS");
    if (!CHECK(strstr(all->said[0], "rank 1 has finished before this one") != NULL)) printf("%s\n", all->said[0]);
    if (!CHECK(strstr(all->said[2], "rank 1 has ended") != NULL)) printf("%s\n", all->said[2]);
    munmap(all, sizeof *all);
}

TEST_MAIN(collectives_of_whole_numbers, places_are_read_strictly, a_secret_has_to_be_the_same, a_short_secret_is_refused,
          processes_find_each_other, a_file_is_that_of_this_user, only_what_was_written_is_removed, the_limit_is_for_all_ports,
          a_file_of_an_earlier_run_is_passed_over, curves_do_not_depend_on_the_number_of_gpus, moments_are_saved_from_all_gpus,
          a_dry_step_needs_the_memory_of_a_real_one, the_end_of_a_process_ends_the_others,
          an_error_of_a_gpu_ends_the_others, nobody_waits_for_a_process_that_has_finished)
