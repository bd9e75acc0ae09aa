/* completions.c - completions of `tn` for bash, zsh and fish, from the tables of options */
#include "tn.h"
#include <string.h>

/* What can be completed after an option, or as an argument: a file, a folder, one of some words, words that are separated by
   commas, or "auto", which some numbers may be. */
typedef enum completion {
    COMPLETE_NOTHING, COMPLETE_FILE, COMPLETE_FOLDER, COMPLETE_WORDS, COMPLETE_LIST, COMPLETE_AUTO
} completion;

static completion option_completion(const option *o)
{
    if (o->kind == OPTION_CHOICE) return COMPLETE_WORDS;
    if (o->kind == OPTION_CHOICES) return COMPLETE_LIST;
    if (o->kind == OPTION_FILES) return COMPLETE_FILE;
    if (o->automatic) return COMPLETE_AUTO;
    if (o->kind != OPTION_TEXT) return COMPLETE_NOTHING;
    if (!strcmp(o->hint, "RUN")) return COMPLETE_FOLDER;
    return strstr(o->hint, "FILE") || strstr(o->hint, "CHECKPOINT") ? COMPLETE_FILE : COMPLETE_NOTHING;
}

/* Arguments are files, except where the usage line has a list of words in their place, as in "bash|zsh|fish", "[xor|digits]" or
   "RUN heads|pairs [TEXT]": the place of that list, from 0, or -1. */
static int place_of_words(const usage *u)
{
    const char *word = u->arguments;
    for (int place = 0; *word; place++) {
        const size_t n = strcspn(word, " ");
        const char   first = word[*word == '['];
        if (first >= 'a' && first <= 'z' && memchr(word, '|', n)) return place;
        word += n;
        word += strspn(word, " ");
    }
    return -1;
}

/* The list of words in a usage line. */
static const char *argument_words(const usage *u)
{
    const char *word = u->arguments;
    for (int place = place_of_words(u); place > 0; place--) word = strchr(word, ' ') + 1;
    return word + (*word == '[');
}

/* What an argument is, by its place. */
static completion argument_completion(const usage *u, int place)
{
    if (place >= u->most_arguments) return COMPLETE_NOTHING;
    if (place_of_words(u) == place) return COMPLETE_WORDS;
    return strpbrk(u->arguments, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") ? COMPLETE_FILE : COMPLETE_NOTHING;
}

static bool in_group(const usage *u) { return strchr(u->command, ' ') != NULL; }

/* The words of "a|b|c", with spaces between them. */
static void print_words(const char *hint)
{
    for (; *hint && *hint != ' ' && *hint != ']'; hint++) print("%c", *hint == '|' ? ' ' : *hint);
}

/* Names of commands: the first words, each once, or the second words of the only group. */
static void print_names(const command *commands, int count, bool second)
{
    bool group = false, any = false;
    for (int k = 0; k < count; k++) {
        const usage *u = commands[k].usage;
        const char  *word = u->command;
        if (second != in_group(u) && (second || group)) continue;
        if (second) word = strchr(word, ' ') + 1;
        else if (in_group(u)) {
            if (group) continue;
            group = true;
        }
        print("%s%.*s", any ? " " : "", (int)strcspn(word, " "), word);
        any = true;
    }
}

/* ---- bash -------------------------------------------------------------------------------------- */

/* The pattern "COMMAND --OPTION", and "COMMAND -O" if the option has a letter. */
static void bash_pattern(const usage *u, const option *o)
{
    print("\"%s --%s\"", u->command, o->name);
    if (short_name(o->name)) print(" | \"%s -%c\"", u->command, short_name(o->name));
}

/* The patterns of one kind of completion. */
static void bash_patterns(const command *commands, int count, completion wanted, const char *action)
{
    bool any = false;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < commands[k].usage->count; i++) {
            const option *o = &commands[k].usage->options[i];
            if (o->kind == OPTION_FLAG || option_completion(o) != wanted) continue;
            print(any ? " | \\\n        " : "        ");
            bash_pattern(commands[k].usage, o);
            any = true;
        }
    if (any) print(")\n            %s ;;\n", action);
}

/* What follows an option that takes a value. */
static void bash_values(const command *commands, int count)
{
    for (int k = 0; k < count; k++)
        for (int i = 0; i < commands[k].usage->count; i++) {
            const option    *o = &commands[k].usage->options[i];
            const completion what = option_completion(o);
            if (what != COMPLETE_WORDS && what != COMPLETE_LIST) continue;
            print("        ");
            bash_pattern(commands[k].usage, o);
            print(")\n            _tn_%s \"", what == COMPLETE_LIST ? "list" : "reply");
            print_words(o->hint);
            print("\"; return ;;\n");
        }
    bash_patterns(commands, count, COMPLETE_FILE, "_tn_files -f; return");
    bash_patterns(commands, count, COMPLETE_FOLDER, "_tn_files -d; return");
    bash_patterns(commands, count, COMPLETE_AUTO, "_tn_reply auto; return");
    bash_patterns(commands, count, COMPLETE_NOTHING, "return");
}

/* Options and arguments of each command. */
static void bash_arguments(const command *commands, int count)
{
    for (int k = 0; k < count; k++) {
        const usage     *u = commands[k].usage;
        const int        words = place_of_words(u);
        print("        \"%s\")\n            if [[ $cur == -* ]]; then _tn_reply \"", u->command);
        for (int i = 0; i < u->count; i++) print("--%s ", u->options[i].name);
        print("--help\"");
        if (words >= 0) {                                       /* as long as none of them is there */
            const int first = words + 2 + in_group(u);
            print("; elif ((COMP_CWORD >= %d)) && ! _tn_has %d \"", first, first);
            print_words(argument_words(u));
            print("\"; then _tn_reply \"");
            print_words(argument_words(u));
            print("\"");
        }
        if (argument_completion(u, words ? 0 : 1) == COMPLETE_FILE) print("; else _tn_files -f");
        print("; fi ;;\n");
    }
}

static void print_bash(const command *commands, int count)
{
    print("# bash completion of tn, generated by `tn completions bash`\n\n"
          "_tn_reply() {  # WORDS: those that begin with $cur\n"
          "    COMPREPLY=($(compgen -W \"$1\" -- \"$cur\"))\n}\n\n"
          "_tn_list() {  # WORDS: the same for the last of words that are separated by commas\n"
          "    local first=\n    if [[ $cur == *,* ]]; then first=${cur%%,*},; fi\n"
          "    COMPREPLY=($(compgen -P \"$first\" -W \"$1\" -- \"${cur##*,}\"))\n}\n\n"
          "_tn_files() {  # -f or -d: files or directories that begin with $cur\n"
          "    local name\n    compopt -o filenames 2>/dev/null\n"
          "    while IFS= read -r name; do COMPREPLY+=(\"$name\"); done < <(compgen \"$1\" -- \"$cur\")\n}\n\n"
          "_tn_has() {  # N WORDS: one of them is among the words of the line from the N-th on\n"
          "    local i\n"
          "    for ((i = $1; i < COMP_CWORD; i++)); do [[ \" $2 \" == *\" ${COMP_WORDS[i]} \"* ]] && return; done\n"
          "    return 1\n}\n\n"
          "_tn() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
          "    COMPREPLY=()\n"
          "    # --option=value is three words\n"
          "    if [[ $cur == = ]]; then cur=\n"
          "    elif [[ $prev == = ]] && ((COMP_CWORD > 2)); then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "    if ((COMP_CWORD == 1)); then _tn_reply \"");
    print_names(commands, count, false);
    print(" help --help --version\"; return; fi\n"
          "    if [[ $command == help ]]; then\n"
          "        if ((COMP_CWORD == 2)); then _tn_reply \"");
    print_names(commands, count, false);
    print("\"; return; fi\n"
          "        if [[ ${COMP_WORDS[2]} == tokenizer ]] && ((COMP_CWORD == 3)); then _tn_reply \"");
    print_names(commands, count, true);
    print("\"; fi\n        return\n    fi\n"
          "    if [[ $command == tokenizer ]]; then\n"
          "        if ((COMP_CWORD == 2)); then _tn_reply \"");
    print_names(commands, count, true);
    print("\"; return; fi\n        command=\"tokenizer ${COMP_WORDS[2]}\"\n    fi\n"
          "    case \"$command $prev\" in\n");
    bash_values(commands, count);
    print("    esac\n    case \"$command\" in\n");
    bash_arguments(commands, count);
    print("    esac\n}\n\ncomplete -F _tn tn tn-cuda\n");
}

/* ---- zsh --------------------------------------------------------------------------------------- */

/* The first clause of a help text, within single quotes: `special` gets a backslash. */
static void print_quoted(const char *text, const char *special)
{
    const size_t n = strstr(text, "; ") ? (size_t)(strstr(text, "; ") - text) : strlen(text);
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\'') print("'\\''");
        else {
            if (strchr(special, text[i])) print("\\");
            print("%c", text[i]);
        }
    }
}

static void zsh_action(completion what, const char *words)
{
    if (what == COMPLETE_FILE) print("_files");
    else if (what == COMPLETE_FOLDER) print("_files -/");
    else if (what == COMPLETE_WORDS) {
        print("(");
        print_words(words);
        print(")");
    } else if (what == COMPLETE_LIST) {
        print(" _sequence -d compadd - ");
        print_words(words);
    } else print(what == COMPLETE_AUTO ? "(auto)" : " ");
}

/* What follows an option's name: its help and its value. */
static void zsh_value(const option *o)
{
    print("[");
    print_quoted(o->help, "[]\\");
    print("]");
    if (o->kind != OPTION_FLAG) {
        const completion what = option_completion(o);
        print(":%s:", what == COMPLETE_WORDS || what == COMPLETE_LIST ? "value" : o->hint);
        zsh_action(what, o->hint);
    }
    print("' \\\n");
}

static void zsh_command(const usage *u)
{
    int i;
    print("        (%s%s%s)\n            _arguments -S \\\n", in_group(u) ? "'" : "", u->command, in_group(u) ? "'" : "");
    for (i = 0; i < u->count; i++) {
        const option *o = &u->options[i];
        print("                '%s--%s%s", o->kind == OPTION_FILES ? "*" : "", o->name, o->kind == OPTION_FLAG ? "" : "=");
        zsh_value(o);
        if (!short_name(o->name)) continue;
        print("                '(--%s)-%c", o->name, short_name(o->name));
        zsh_value(o);
    }
    print("                '(- *)--help[explain the command]'");
    for (i = 0; i <= place_of_words(u); i++) {
        print(" \\\n                '%d:argument:", i + 1);
        zsh_action(argument_completion(u, i), argument_words(u));
        print("'");
    }
    if (argument_completion(u, i) != COMPLETE_NOTHING) {
        if (u->most_arguments > 1) print(" \\\n                '*:argument:");
        else print(" \\\n                '%d:argument:", i + 1);
        zsh_action(argument_completion(u, i), "");
        print("'");
    }
    print(" ;;\n");
}

static void zsh_summaries(const command *commands, int count, bool second)
{
    bool group = false;
    for (int k = 0; k < count; k++) {
        const usage *u = commands[k].usage;
        const char  *space = strchr(u->command, ' ');
        if (second && !space) continue;
        if (!second && space) {
            if (!group) print("        '%.*s:train and use tokenizers'\n", (int)(space - u->command), u->command);
            group = true;
            continue;
        }
        print("        '%s:", second ? space + 1 : u->command);
        print_quoted(u->summary, "\\");
        print("'\n");
    }
}

static void print_zsh(const command *commands, int count)
{
    print("#compdef tn tn-cuda\n# zsh completion of tn, generated by `tn completions zsh`\n\n"
          "_tn() {\n    local -a commands group\n    local command\n    commands=(\n");
    zsh_summaries(commands, count, false);
    print("        'help:explain a command'\n    )\n    group=(\n");
    zsh_summaries(commands, count, true);
    print("    )\n"
          "    if (( CURRENT > 2 )) && [[ $words[2] == help ]]; then\n        shift words\n        (( CURRENT-- ))\n"
          "        if (( CURRENT > 2 )) && [[ $words[2] != tokenizer ]]; then return 1; fi\n    fi\n"
          "    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
          "    command=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
          "    if [[ $command == tokenizer ]]; then\n"
          "        if (( CURRENT == 2 )); then\n            _describe command group\n            return\n        fi\n"
          "        command=\"tokenizer $words[2]\"\n        shift words\n        (( CURRENT-- ))\n    fi\n"
          "    case $command in\n");
    for (int k = 0; k < count; k++) zsh_command(commands[k].usage);
    print("    esac\n}\n\nif [[ $funcstack[1] == _tn ]]; then _tn \"$@\"; else compdef _tn tn tn-cuda; fi\n");
}

/* ---- fish -------------------------------------------------------------------------------------- */

static void fish_command(const usage *u)
{
    int i;
    for (i = 0; i < u->count; i++) {
        const option    *o = &u->options[i];
        const completion what = option_completion(o);
        print("complete -c tn -n '__tn_is %s' -l %s", u->command, o->name);
        if (short_name(o->name)) print(" -s %c", short_name(o->name));
        if (o->kind != OPTION_FLAG) print(what == COMPLETE_FILE ? " -r -F" : " -x");
        if (what == COMPLETE_FOLDER) print(" -a '(__fish_complete_directories)'");
        if (what == COMPLETE_AUTO) print(" -a auto");
        if (what == COMPLETE_WORDS || what == COMPLETE_LIST) {
            print(what == COMPLETE_LIST ? " -a '(__tn_list " : " -a '");
            print_words(o->hint);
            print(what == COMPLETE_LIST ? ")'" : "'");
        }
        print(" -d '");
        print_quoted(o->help, "\\");
        print("'\n");
    }
    print("complete -c tn -n '__tn_is %s' -l help -d 'explain the command'\n", u->command);
    i = place_of_words(u);
    if (i >= 0) {
        print("complete -c tn -n '__tn_is %s; and __tn_lacks %d ", u->command, i + 1 + in_group(u));
        print_words(argument_words(u));
        print("' -a '");
        print_words(argument_words(u));
        print("'\n");
    }
    if (argument_completion(u, i ? 0 : 1) == COMPLETE_FILE) print("complete -c tn -n '__tn_is %s' -F\n", u->command);
}

#define FISH_FIRST_WORD "__tn_words 1; or begin; __tn_is help; and __tn_words 2; end"

static void print_fish(const command *commands, int count)
{
    bool group = false;
    print("# fish completion of tn, generated by `tn completions fish`\n\n"
          "function __tn_is  # COMMAND...: the words after tn begin with these\n"
          "    set -l words (commandline -opc)\n    set -l last (math (count $argv) + 1)\n"
          "    test (count $words) -ge $last; or return 1\n    test \"$words[2..$last]\" = \"$argv\"\nend\n\n"
          "function __tn_words  # N: there are so many words before the cursor's\n"
          "    test (count (commandline -opc)) -eq $argv[1]\nend\n\n"
          "function __tn_lacks  # N WORD...: N words or more after tn are there, and after them none of these\n"
          "    set -l words (commandline -opc)\n    set -l first (math $argv[1] + 2)\n"
          "    test (count $words) -ge (math $first - 1); or return 1\n"
          "    for word in $words[$first..-1]\n        contains -- $word $argv[2..-1]; and return 1\n    end\n"
          "    return 0\nend\n\n"
          "function __tn_list  # WORD...: what may be the last of words that are separated by commas\n"
          "    set -l first (commandline -ct | string replace -r '^--[^=]*=' '' | string replace -r '[^,]*$' '')\n"
          "    printf '%%s\\n' \"$first\"$argv\nend\n\n"
          "complete -c tn -f\ncomplete -c tn-cuda -w tn\n"
          "complete -c tn -n '__tn_words 1' -l help -d 'list the commands'\n"
          "complete -c tn -n '__tn_words 1' -l version -d 'print the version'\n"
          "complete -c tn -n '__tn_words 1' -a help -d 'explain a command'\n");
    for (int k = 0; k < count; k++) {
        const usage *u = commands[k].usage;
        const char  *space = strchr(u->command, ' ');
        const int    first = (int)strcspn(u->command, " ");
        if (space) print("complete -c tn -n '__tn_is %.*s; and __tn_words 2' -a %s -d '", first, u->command, space + 1);
        else print("complete -c tn -n '" FISH_FIRST_WORD "' -a %s -d '", u->command);
        print_quoted(u->summary, "\\");
        print("'\n");
        if (space && !group)
            print("complete -c tn -n '" FISH_FIRST_WORD "' -a %.*s -d 'train and use tokenizers'\n", first, u->command);
        group = group || space;
    }
    for (int k = 0; k < count; k++) fish_command(commands[k].usage);
}

bool print_completions(const char *shell, const command *commands, int count)
{
    if (!strcmp(shell, "bash")) print_bash(commands, count);
    else if (!strcmp(shell, "zsh")) print_zsh(commands, count);
    else if (!strcmp(shell, "fish")) print_fish(commands, count);
    else return false;
    return true;
}
