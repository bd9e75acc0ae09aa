/* tn.c - the command `tn`: finds the subcommand. tn.h has a map of the files. */
#include "tn.h"
#include <string.h>

typedef struct command { const char *name; int (*run)(int argc, char **argv); const char *about; } command;

static const command commands[] = {
    {"tokenizer", tokenizer_main, "train a tokenizer, turn text into ids and back"},
    {"synthetic", synthetic_main, "write a shard of made-up tokens"},
    {"clean", clean_main, "report stories with mojibake, and leave them out"},
    {"train", train_main, "train a language model, resume a run"},
    {"generate", generate_main, "write text with a model"},
    {"info", info_main, "tell what a run or a file holds"},
};

static void help(FILE *to)
{
    size_t i;
    fprintf(to, "usage: tn COMMAND ... (tn COMMAND --help tells more)\n\n");
    for (i = 0; i < sizeof commands / sizeof *commands; i++) fprintf(to, "  %-10s %s\n", commands[i].name,
                                                                     commands[i].about);
    fprintf(to, "\nExit status: 0 done; 1 a file, the data or the machine failed; 2 wrong use;\n"
                "130, 143 stopped by SIGINT, SIGTERM, and saved.\n");
}

static int run_command(int argc, char **argv)
{
    size_t i;
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("tn %s\n", tn_version());
        return 0;
    }
    for (i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 2, argv + 2);
    usage_error("there is no command \"%s\" (tn --help)", argv[1]);
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    int status = run_command(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) fail("cannot write to the standard output");
    return status;
}
