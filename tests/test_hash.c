/* test_hash.c: the hash of tn train --audit (tools/tn/hash.c), beside the published values of FIPS 180-4 and those of Python's
   hashlib: hashlib.sha256(bytes((i * i + 7 * n) % 251 for i in range(n))) for n around the borders of a block. */
#include "kit.h"
#include "../tools/tn/hash.c"

/* In pieces of so many bytes. */
static void check_hash(const char *text, size_t bytes, size_t piece, const char *expected)
{
    char   got[SHA256_TEXT];
    sha256 s;
    memset(&s, 0x5A, sizeof s);
    sha256_open(&s);
    for (size_t at = 0; at < bytes; at += piece) {
        sha256_add(&s, text + at, bytes - at < piece ? bytes - at : piece);
        sha256_text(&s, got);                           /* changes nothing */
    }
    sha256_text(&s, got);
    CHECK_STR(got, expected);
}

TEST(published)
{
    static const char *const cases[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t piece = 1; piece < 130; piece++) check_hash(cases[k][0], strlen(cases[k][0]), piece, cases[k][1]);
}

TEST(million)
{
    static char a[1000000];
    memset(a, 'a', sizeof a);
    check_hash(a, sizeof a, sizeof a, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    check_hash(a, sizeof a, 4093, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(lengths)
{
    static const struct { int n; const char *hash; } cases[] = {
        {1, "ca358758f6d27e6cf45272937977a748fd88391db679ceda7dc7bf1f005ee879"},
        {3, "7adc91476daeb63eb55b4bc2ce580ed31ee4ac0274dd0b9054579eb2b9842925"},
        {55, "e9798c6dcf397cecba1ad5f4fb7fc2354e05dd2ac49ea2a9ec47c857559580a2"},
        {56, "afe8b9cf7f775ddf165b19ddd6edaf7d1304ad00938a0b3de2e4cca99631f00b"},
        {57, "e6825f43117245e3f056a91932057c679e2e541dc6f79ce33ae06552225f03d7"},
        {63, "f9856bf1b7ca732105fa09f124a33cd1e478d0270a6654d5c242cc55d5e1979b"},
        {64, "9144cea7d10a4805760ba1beb39284f0bceb6e7e10d4bc10865a01b8fbda429c"},
        {65, "cb4f9e5c5270f00c2f331e48e357ca92b5179565d5417c2dbca4a2dd86c7ad75"},
        {119, "9bd7d93614775a3f9e720611470f7d61d4b920b2b4b4f169c15a5b6dc6b8894a"},
        {120, "4a941d62a5518556590917d3862acb7ba54f159726994a93c430d018ffe7fa92"},
        {127, "03537c188c52132cb262fc162451eb6a8c7a4091bcfa57f867bf17e284d2c19e"},
        {128, "863de43cc22877fcb9287475df518ed207cf4382c840610b10f174b0326a4aec"},
        {1000, "a43eb7bfc585bd2e18037e6becc643568f44bd8bfc1b1312f0ca03a5a3bd9e77"},
    };
    char text[1000];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int n = cases[k].n;
        for (int i = 0; i < n; i++) text[i] = (char)((i * i + 7 * n) % 251);
        for (int piece = 1; piece < 150; piece += 9) check_hash(text, (size_t)n, (size_t)piece, cases[k].hash);
    }
}

TEST_MAIN(published, million, lengths)
