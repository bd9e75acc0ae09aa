/* tn.c - the command `tn`: finds the subcommand. tn.h has a map of the files. */
#include "tn.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int man_main(int argc, char **argv);
static int completions_main(int argc, char **argv);

static const usage man_usage = {
    "man", "", "print the manual page of tn", "Prints the manual page: tn man > tn.1, then man ./tn.1.", NULL, NULL, 0, 0,
    NULL
};

static const usage completions_usage = {
    "completions", "bash|zsh|fish", "print completions for a shell",
    "Prints a script that completes commands, options, their values and file names.",
    "bash: source <(tn completions bash). zsh: tn completions zsh > DIRECTORY/_tn, in a directory of fpath. fish: tn "
    "completions fish > ~/.config/fish/completions/tn.fish.", NULL, 0, 1, NULL
};

static const command commands[] = {
    {&train_usage, train_main},
    {&generate_usage, generate_main},
    {&eval_usage, eval_main},
    {&info_usage, info_main},
    {&cache_usage, cache_main},
    {&circuits_usage, circuits_main},
    {&prove_usage, prove_main},
    {&merge_usage, merge_main},
    {&audit_usage, audit_main},
    {&compress_usage, compress_main},
    {&decompose_usage, decompose_main},
    {&draw_usage, draw_main},
    {&look_usage, look_main},
    {&demo_usage, demo_main},
    {&import_usage, import_main},
    {&export_usage, export_main},
    {&tokenizer_train_usage, tokenizer_train_main},
    {&tokenizer_encode_usage, tokenizer_encode_main},
    {&tokenizer_decode_usage, tokenizer_decode_main},
    {&tokenizer_compare_usage, tokenizer_compare_main},
    {&einsum_usage, einsum_main},
    {&clean_usage, clean_main},
    {&synthetic_usage, synthetic_main},
    {&completions_usage, completions_main},
    {&man_usage, man_main},
};

enum { COMMANDS = (int)(sizeof commands / sizeof *commands) };

/* The commands whose names begin with `group`; NULL: all. */
static void list_commands(FILE *to, const char *group)
{
    for (int i = 0; i < COMMANDS; i++) {
        const usage *u = commands[i].usage;
        if (!group || !strncmp(u->command, group, strlen(group))) print_to(to, "  %-18s %s\n", u->command, u->summary);
    }
}

static void help(FILE *to)
{
    print_to(to, "usage: tn COMMAND ... (tn COMMAND --help explains a command)\n\n");
    list_commands(to, NULL);
    print_to(to, "  %-18s %s\n", "help COMMAND", "explain a command, as tn COMMAND --help does");
    print_to(to, "\nExit status:\n  0              done\n  1              a file, the data or the machine failed\n"
                "  2              wrong usage\n  129, 130, 143  stopped by SIGHUP, SIGINT, SIGTERM after everything was saved\n");
}

static int man_main(int argc, char **argv)
{
    read_options(&man_usage, argc, argv);
    print_manual(commands, COMMANDS);
    return 0;
}

static int completions_main(int argc, char **argv)
{
    const char *shell = read_options(&completions_usage, argc, argv) ? argv[0] : "";
    if (!print_completions(shell, commands, COMMANDS)) usage_error("the shell is \"%s\", expected bash, zsh or fish", shell);
    return 0;
}

/* How many of the first words are the command's name, one or two; 0 if they are not. */
static int name_length(const char *name, int count, char **words)
{
    const char *second = strchr(name, ' ');
    const size_t first = second ? (size_t)(second - name) : strlen(name);
    if (count < 1 || strlen(words[0]) != first || memcmp(words[0], name, first)) return 0;
    if (!second) return 1;
    return count > 1 && !strcmp(words[1], second + 1) ? 2 : 0;
}

/* NULL if there is no such command. *used: the number of words of its name. */
static const command *find_command(int count, char **words, int *used)
{
    for (int i = 0; i < COMMANDS; i++)
        if ((*used = name_length(commands[i].usage->command, count, words)) > 0) return &commands[i];
    return NULL;
}

static bool is_help(const char *word) { return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help"); }

static int group_help(void)
{
    print("usage: tn tokenizer train|encode|decode|compare ... (--help explains each)\n\n");
    list_commands(stdout, "tokenizer ");
    return 0;
}

/* An error that proposes the nearest command. The first word is not a command; or it is "tokenizer", and the second is not
   one of its commands. */
static int unknown_command(int count, char **words)
{
    const bool  group = !strcmp(words[0], "tokenizer");
    const char *written = group ? count > 1 ? words[1] : "" : words[0];
    suggestion  best = {NULL, 0};
    for (int i = 0; i < COMMANDS; i++) {
        const char *second = strchr(commands[i].usage->command, ' ');
        if (group && second) consider_word(&best, written, second + 1);
        if (!group) consider_word(&best, written, second ? "tokenizer" : commands[i].usage->command);
    }
    if (group) set_command_name("tokenizer");
    if (!*written) usage_error("no command is given, expected train, encode, decode or compare (tn tokenizer --help)");
    if (*written == '-') usage_error("unknown option %s (tn%s --help)", written, group ? " tokenizer" : "");
    usage_error("unknown command %s%s%s%s (tn%s --help)", written, best.word ? "; did you mean " : "",
                best.word ? best.word : "", best.word ? "?" : "", group ? " tokenizer" : "");
    return EXIT_USAGE;
}

static int run_command(int count, char **words)
{
    const command *found;
    int            used;
    if (count < 1) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(words[0], "--version")) {
        print("tn %s\n", tn_version());
        return 0;
    }
    if (is_help(words[0])) {
        if (count == 1) {
            help(stdout);
            return 0;
        }
        found = find_command(count - 1, words + 1, &used);
        if (!found && count == 2 && !strcmp(words[1], "tokenizer")) return group_help();
        if (!found) return unknown_command(count - 1, words + 1);
        print_help(found->usage);
        return 0;
    }
    found = find_command(count, words, &used);
    if (!found && count == 2 && !strcmp(words[0], "tokenizer") && is_help(words[1])) return group_help();
    if (!found) return unknown_command(count, words);
    set_command_name(found->usage->command);
    return found->run(count - used, words + used);
}

/* However the command ends: what could not be printed is an error. */
static void check_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return;
    warn("cannot write to the standard output");
    _exit(EXIT_ERROR);
}

/* A standard descriptor that is closed would be that of the next file which is opened: messages would go into it. */
static void open_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(EXIT_ERROR);
}

int main(int argc, char **argv)
{
    open_standard_files();
    signal(SIGXFSZ, SIG_IGN);                         /* a write beyond a file limit is an error, after which nothing is left */
    atexit(check_output);
    return run_command(argc - 1, argv + 1);
}
