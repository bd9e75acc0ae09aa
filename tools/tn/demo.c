/* demo.c - tn demo: pages that teach. In each the library, compiled to WebAssembly, trains a layer in the browser while its
   interaction matrix and eigenvectors move. The page is that of `tn look` with the scripts of tools/tn/demo. */
#include "look.h"
#include "build/demo_assets.h"
#include <stdlib.h>
#include <string.h>

enum { IMAGES = 1797, PIXELS = 64, HEAD_OF_IMAGES = 16, HEAD_OF_LABELS = 8 };      /* heads: bytes before the numbers */

static const char *out_option;
static option options[] = {
    TEXT_ROW("out", &out_option, "FILE", "the page of the lesson, or the folder of all of them; the defaults are xor.html and "
             "digits.html, and the folder demo", NEVER),
};

const usage demo_usage = {
    "demo", "[xor|digits]", "make a page that trains a network in the browser",
    "Makes a page in which a bilinear layer learns XOR, or handwritten digits of 8 x 8 pixels, step by step, while its weights, "
    "its interaction matrix and its eigenvectors move. Without a lesson: both pages, and index.html, which leads to them. The "
    "library is inside, compiled to WebAssembly: each page is one file, and needs no network.",
    "Examples: tn demo xor, then open xor.html in a browser. tn demo --out pages.", options, sizeof options / sizeof *options, 1,
    NULL
};

#define PART(name) {name, name##_size}
typedef struct lesson { const char *name, *title, *about; page_part script; } lesson;
static const lesson lessons[] = {
    {"xor", "XOR", "Two bits, one matrix of four numbers, and gradient descent that finds it. Change the learning rate until it "
     "breaks.", PART(demo_xor)},
    {"digits", "Digits", "Ten matrices learn to read handwriting. Their eigenvectors begin as noise and become strokes.",
     PART(demo_digits)}
};
enum { LESSONS = (int)(sizeof lessons / sizeof *lessons) };

static void put_link(page *p, const char *file, const char *title, const char *text)
{
    char *name = format_text("%s.html", file);
    page_open(p, NULL, '{');
    page_text(p, "href", name);
    page_text(p, "title", title);
    page_text(p, "text", text);
    page_close(p, '}');
    free(name);
}

/* Links to the lessons other than `here`, on whose page they are, and to the list; NULL: to all lessons. */
static void links_section(page *p, const lesson *here, const char *id, const char *title, const char *text)
{
    page_section(p, "links", id, title, text);
    page_open(p, "links", '[');
    for (int k = 0; k < LESSONS; k++)
        if (&lessons[k] != here) put_link(p, lessons[k].name, lessons[k].title, lessons[k].about);
    if (here) put_link(p, "index", "All lessons", "Back to the list.");
    page_close(p, ']');
    page_close(p, '}');
}

/* The images that the page of digits learns from, [1797,64] with numbers from 0 to 16, and their labels. */
static void put_digits(page *p)
{
    const stored images = page_store_bytes(p, demo_images + HEAD_OF_IMAGES, IMAGES * PIXELS);
    const stored labels = page_store_bytes(p, demo_labels + HEAD_OF_LABELS, IMAGES);
    page_array(p, "images", &images);
    page_array(p, "labels", &labels);
}

/* script: writes the sections of the page before those that follow here. */
static void begin_page(page *p, const char *kind, const char *title, const page_part *script)
{
    static const page_part style = PART(demo_style), lesson_script = PART(demo_lesson), program = PART(demo_wasm);
    page_begin(p, "demo", kind, title);
    p->style = style;
    p->script[0] = lesson_script;
    p->script[1] = *script;
    p->wasm = program;
}

static void end_page(page *p, const char *out, path_kind kind)
{
    page_close(p, ']');
    page_write(p, out, kind);
    print("page: %s\n", out);
}

/* whole: with links to the other pages. */
static void write_lesson(const lesson *l, const char *out, bool whole)
{
    page  p;
    char *title = format_text("%s, learned while you watch", l->title);
    begin_page(&p, "a lesson", title, &l->script);
    if (!strcmp(l->name, "digits")) put_digits(&p);
    page_open(&p, "sections", '[');
    if (whole) links_section(&p, l, "more", "More", "Each page works alone; together they are one tour.");
    end_page(&p, out, !whole && out_option ? BY_USER : BY_NAME);
    free(title);
}

static void write_index(const char *out)
{
    static const page_part script = PART(demo_index);
    page p;
    begin_page(&p, "lessons", "Bilinear layers, learned while you watch", &script);
    p.wasm.bytes = 0;
    page_open(&p, "sections", '[');
    links_section(&p, NULL, "lessons", "Lessons", "Each page trains a small network in your browser, with the same library that "
                  "trains large ones, compiled to WebAssembly. A page is one file and needs no network.");
    end_page(&p, out, BY_NAME);
}

static void write_all(const char *folder)
{
    char *out;
    make_folder(folder);
    for (int k = 0; k < LESSONS; k++) {
        out = format_text("%s/%s.html", folder, lessons[k].name);
        write_lesson(&lessons[k], out, true);
        free(out);
    }
    out = join_path(folder, "index.html");
    write_index(out);
    free(out);
}

int demo_main(int argc, char **argv)
{
    const char *name = read_options(&demo_usage, argc, argv) ? argv[0] : NULL;
    int         k = 0;
    while (name && k < LESSONS && strcmp(name, lessons[k].name)) k++;
    if (k == LESSONS) usage_error("the lesson is \"%s\", expected xor or digits", name);
    if (!demo_wasm_size)
        fail("this tn was built without a compiler for WebAssembly, which the pages need (sh tools/setup.sh --look installs "
             "it)");
    if (name) {
        char *out = out_option ? copy_text(out_option) : format_text("%s.html", name);
        write_lesson(&lessons[k], out, false);
        free(out);
    } else write_all(out_option ? out_option : "demo");
    return 0;
}
