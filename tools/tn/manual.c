/* manual.c - the manual page of `tn`, in roff's man macros, from the tables of options

   It depends on nothing but the tables and the version: the same source gives the same bytes. */
#include "tn.h"
#include <stdlib.h>
#include <string.h>

/* Of the last change of the page's text. */
#define PAGE_DATE "2026-11-29"

enum { LINE = 78 };

/* A word that roff prints as it is. */
static void escape(buffer *out, const char *word, int n)
{
    static const char *const escapes[] = {"\\\\e", "-\\-", "'\\(aq", "`\\(ga", "^\\(ha", "~\\(ti"};
    size_t k;
    out->bytes = 0;
    if (n && *word == '.') buffer_print(out, "\\&");
    for (int i = 0; i < n; i++) {
        for (k = 0; k < sizeof escapes / sizeof *escapes && *escapes[k] != word[i]; ) k++;
        if (k < sizeof escapes / sizeof *escapes) buffer_print(out, "%s", escapes[k] + 1);
        else buffer_add(out, word + i, 1);
    }
}

static void print_word(const char *word)
{
    buffer escaped = {0};
    escape(&escaped, word, (int)strlen(word));
    print("%s", escaped.data);
    free(escaped.data);
}

/* A paragraph, on lines of its own. */
static void print_paragraph(const char *text)
{
    buffer word = {0};
    int    column = 0;
    while (*text) {
        const int n = (int)strcspn(text, " ");
        if (n == 0) {                               /* more than one blank */
            text++;
            continue;
        }
        escape(&word, text, n);
        if (column && column + 1 + (int)word.bytes > LINE) column = 0 * print("\n");
        else if (column) column += print(" ");
        column += print("%s", word.data);
        text += n + (text[n] == ' ');
    }
    print("\n");
    free(word.data);
}

static void print_section(const char *name, const char *text)
{
    print(".SH %s\n", name);
    if (text) print_paragraph(text);
}

/* A term in bold or as it is, and what it means. */
static void print_item(const char *font, const char *term, const char *text)
{
    print(".TP\n%s", font);
    print_word(term);
    print("%s\n", *font ? "\\fR" : "");
    print_paragraph(text);
}

static void print_option(const option *o)
{
    char *text = option_help(o);
    print(".TP\n");
    if (short_name(o->name)) print("\\fB\\-%c\\fR, ", short_name(o->name));
    print("\\fB\\-\\-");
    print_word(o->name);
    print("\\fR");
    if (o->kind == OPTION_CHOICE || o->kind == OPTION_CHOICES) {
        print(" ");
        print_word(o->hint);
    } else if (o->kind != OPTION_FLAG) print(" \\fI%s\\fR", o->hint);
    print("\n");
    print_paragraph(text);
    free(text);
}

static void print_command(const usage *u)
{
    char *line = format_text(*u->arguments ? "Usage: tn %s %s" : "Usage: tn %s", u->command, u->arguments);
    print(".SS tn %s\n", u->command);
    print_paragraph(line);
    print(".PP\n");
    print_paragraph(u->about);
    for (int i = 0; i < u->count; i++) {
        const char *title = group_title(u, &u->options[i]);
        if (title) {
            print(".PP\n");
            print_paragraph(title);
        }
        print_option(&u->options[i]);
    }
    free(line);
    if (!u->more) return;
    print(".PP\n");
    print_paragraph(u->more);
}

static const char *const about =
    "tn trains language models on plain text, on the processor or on a GPU, and generates text with them. Everything that a "
    "training run writes is in one folder. A run can be stopped or killed at any moment, and resumed: the results are "
    "bit-identical to those of a run that was never stopped.";

static const char *const files[][2] = {
    {"RUN/config.txt", "all settings, which tn train --config reads"},
    {"RUN/config.json", "the model"},
    {"RUN/tokenizer.json", "the tokenizer; without it, tokens are bytes"},
    {"RUN/log.jsonl", "one JSON object per line: loss, learning rate, gradient norm and speed of each step, evaluations, "
                      "samples, and with --audit hashes"},
    {"RUN/" PICTURE, "the loss curve"},
    {"RUN/step-NNNNNNNN.safetensors", "the last checkpoints"},
    {"RUN/model.safetensors", "the trained model, when the run is done"},
};

static const char *const statuses[][2] = {
    {"0", "done"}, {"1", "a file, the data or the machine failed"}, {"2", "wrong usage"},
    {"129, 130, 143", "stopped by SIGHUP, SIGINT, SIGTERM after everything was saved"},
};

static const char *const variables[][2] = {
    {"OMP_NUM_THREADS", "number of threads, if --threads is not given"},
    {"TN_SIMD", "the highest SIMD level that is used: plain, avx2, avx512 or neon"},
};

static const char *const examples[][2] = {
    {"tn train stories.txt --vocab 1024 --out run", "Train a tokenizer and a model."},
    {"tn generate run --prompt \"one day\" --count 3", "Generate three texts."},
    {"tn train --resume run", "Continue a run that was stopped."},
    {"tn train --from run/step-00000500.safetensors --lr 0.01 --out again", "Start another run from a checkpoint."},
};

#define COUNT_OF(list) (sizeof list / sizeof *list)

void print_manual(const command *commands, int count)
{
    print(".\\\" Generated by `tn man`.\n.TH TN 1 \"" PAGE_DATE "\" \"tn %s\" \"User Commands\"\n", tn_version());
    print(".SH NAME\ntn \\- train small language models and generate text with them\n.SH SYNOPSIS\n"
          ".B tn\n.I COMMAND\n.RI [ ARGUMENT ...]\n.br\n.B tn help\n.I COMMAND\n.br\n"
          ".B tn \\-\\-help\n.br\n.B tn \\-\\-version\n");
    print_section("DESCRIPTION", about);
    print(".PP\n");
    print_paragraph("Numbers may end in k, M or G: 8M is 8000000. --option=value means the same as --option value. After -- "
               "everything is an argument. FILE... can also be given as --data FILE.");
    print_section("COMMANDS", NULL);
    for (int k = 0; k < count; k++) print_command(commands[k].usage);
    print_section("CONFIGURATION FILES", "tn train --config reads lines of the form key = value. The keys are the names of "
                  "the options of tn train. A line that begins with # is a comment. A value may be a string in quotes, with "
                  "the escapes of JSON. An option on the command line overrides the file.");
    print_section("FILES", NULL);
    for (size_t i = 0; i < COUNT_OF(files); i++) print_item("\\fI", files[i][0], files[i][1]);
    print_section("EXIT STATUS", NULL);
    for (size_t i = 0; i < COUNT_OF(statuses); i++) print_item("\\fB", statuses[i][0], statuses[i][1]);
    print_section("ENVIRONMENT", NULL);
    for (size_t i = 0; i < COUNT_OF(variables); i++) print_item("\\fB", variables[i][0], variables[i][1]);
    print_section("EXAMPLES", NULL);
    for (size_t i = 0; i < COUNT_OF(examples); i++) print_item("\\fB", examples[i][0], examples[i][1]);
}
