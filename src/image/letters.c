#include "core/inner.h"
#include "io/inner.h"
#include "image/inner.h"

#ifndef TN_NO_IMAGE
/* ---- letters ------------------------------------------------ >>image-letters
   Glyphs are strokes. A glyph's first letter is the space at its sides. Then come points of two letters, x
   and y: a..z = 0..25 in steps of 0.54 units to the right; units from the baseline up, e = 0, so that
   o = 10 is the x-height and s = 14 the height of a capital. A blank lifts the pen. A point whose x is a
   capital is the control point of a parabola between its neighbours. */
#define TNI_GLYPH_STEP 0.54
#define TNI_FONT_UNITS 20.0                                /* of a font's size */
static const char *const tni_glyphs[] = {
    "l", "iasai aeaf", "iasap esep", "hisee qsme cnsn ajqj", "gppPsisBsbpBmilQkqiQeieAeah iuic",          /* space ! " # $ */
    "gfsKskpKmfmAmapAsfs ukZkzhZeuePephPkuk tsge", "gteenCodqDsisNsnpNnilAjahAeieQesk", "iasap",                /* % & ' */
    "ghuAqakAeha", "gauHqhkHeaa", "ggsgm armn anmr", "hakqk ioig", "hbfbeab", "gajij", "haeaf",           /* ( ) * + , - . */
    "emtad", "ihsOsolOeheAealAshs", "mbphshe", "iaoAshsOsooOmjjaeoe", "iapAshsNsnpNmhmOmoiOeheAeah emhm",     /* / 0 1 2 3 */
    "hksaipi kske", "inscsblDnhnOnoiOeheAeah", "inqMsisAsajAeheOeojOnhnAnaj", "iasosfe",                        /* 4 5 6 7 */
    "ihsNsnpNmhmBmbpBshs hmOmoiOeheAeaiAmhm", "ibgCegeOeonOshsAsanAjhjOjon", "haeaf anao", "hbfbeab bnbo",      /* 8 9 : ; */
    "hopakof", "haiqi amqm", "hapokaf", "gapAsgsNsnpNnjmGkgi gegf",                                             /* < = > ? */
    "gtcRbmbAbakAsmsZszlZgvgRgriro rkRomoHohkHgmgRgrk", "eaeksue diri", "iaeasjsPsppPljlQlqhQejeae aljl",       /* @ A B */
    "gspRsksAsalAekeResh", "haeasisSsslSeieae", "ipsasaepe alnl", "hpsasae alml", "gspRsksAsalAekeTetitlll",  /* C D E F G */
    "iasae ssse alsl", "iasae", "hmsmiMegeAeah", "hasae qsaj gmre", "gasaeoe", "iaeaslgwswe", "iaeassess",      /* H .. N */
    "gksUsulUekeAealAsks", "gaeasjsQsqoQkjkak", "gksUsulUekeAealAsks mhtd", "haeasjsQsqoQkjkak ikre",           /* O P Q R */
    "gppPsisBsbpBmilQkqiQeieAeah", "dasss jsje", "iasajAejeSesjss", "easkeus", "easgemsseys", "fasse ssae",     /* S .. X */
    "easjk ssjkje", "hasqsaeqe", "gguauaaga", "eatmd", "gaugugaaa", "gaogsmo", "bacqc", "gasep",        /* Y Z [ \ ] ^ _ ` */
    "hbmBohoOooloe okgkAkahAegeMeoh", "gatae ajAoioPopjPeieAeaj", "fomMoioAoajAeieMeog",                        /* a b c */
    "gptpe pjPohoAoajAehePepj", "fajpjPoioAoajAeieNeog", "ektEtepee aojo", "gpopePahaBabc pjPohoAoajAehePepj",  /* d e f g */
    "iatae akAohoOookoe", "haoae aras", "geoedEaaa eres", "gatae noai fkoe", "iatae",                           /* h .. l */
    "iaoae akAogoMomkme mkMosoYoykye", "iaoae akAohoOookoe", "fioQoqjQeieAeajAoio", "gaoaa ajAoioPopjPeieAeaj", /* m n o p */
    "gpopa pjPohoAoajAehePepj", "faoae akAoio", "fmmMohoBoblBkhjNinhNeheAeag", "eerehEeje aojo",                /* q r s t */
    "iaoaiAeheOeoi oooe", "daoheoo", "daogeloqewo", "eaooe ooae", "daohe ooheFaba", "gaonoaene",                /* u .. z */
    "giuEueremEkakEkegedEaia", "iauaa", "gauEueremEkikEkegedEaaa", "hajEnikMhql",                               /* { | } ~ */
    "hamqm iqii afqf", "hakal", "hanmh ahmn", "hakqk", "gdqAqasAuduGugsGqdq",   /* +- middle dot x minus degree */
    "heoakeg moikmg", "haoekag iomkig", "haeasosoeae"                           /* << >> box */
};
enum { TNI_GLYPH_MORE = 127 - 32, TNI_GLYPH_BOX = TNI_GLYPH_MORE + 7 };

/* Greek from U+0391 and from U+03B1; one letter alone is the Latin letter of the same form. */
static const char *const tni_greek[2][25] = {
    {"A", "B", "haeasms", "eaejsseae", "E", "Z", "H", "gksUsulUekeAealAsks flpl", "I", "K", "eaejsse", "M", "N",  /* to Nu */
     "gasos clml aeoe", "O", "iaeasqsqe", "P", NULL, "gosasilaeoe", "T", "Y", "gkpUpukUfkfAfakApkp kske", "X",
     "gasanAhjhShsnss jsje", "gaeheAhamAsksUsumUhneue"},                                              /* Xi ... Omega */
    {"gqoNeheAeajAohoMoqe", "gaaaoAsgsMsmpMlgl glOloiOeheCeag", "daogeoo gega", "gnrLsisDsdqDnknPmpiPeheAeaiAnin",
     "gnnKohoBoblBjhj hjAjahAeheLeog", "gcsmsAlaiAeieMemcMaha", "iaoae akAohoOookoa", "ghsAsalAeheOeolOshs alol",
     "haoahAeee", "gaoae moai ekme", "fatEtgqoe inae", "iaoaa aiAeheOeoi oooe", "faoheOjoo",           /* alpha ... nu */
     "gcsms isBsbpBmimkm imAmaiAeieMemcMaha", "o", "faoro eoee nonhNeqe", "gaaajAoioQoqjQeieAeaj",
     "gnnKohoAoajAfhfMfmcMaha", "froioAoajAeheOeojOoio", "faooo hohhHele", "haoaiAeheOeojOmmo",
     "gioAoajAeieQeqjQoio isia", "faooa ooaa", "gaoaiAeieQeqiqo isia", "gdoAlaiAefeKekikl kiKepeUeuiUlro"} /* xi ... omega */
};

/* Latin-1 from U+00C0: a letter, or '0' + k for tni_latin_own[k] (Ae, Eth, O/, Thorn,
   sharp s, ae, eth, o/, thorn, times, divided by), and its diacritical mark in tni_latin_marks. */
static const char tni_latin_base[] = "AAAAAA0CEEEEIIII1NOOOOO92UUUUY34aaaaaa5ceeeeiiii6nooooo:7uuuuy8y";
static const char tni_latin_mark[] = "`'^~\"o ,`'^\"`'^\" ~`'^~\"  `'^\"'  `'^~\"o ,`'^\"`'^\" ~`'^~\"  `'^\"' \"";
static const char *const tni_latin_own[] = {
    "faeksvs kskeve fjkj kltl", "hdedslsVsvlVelede alil", "gksUsulUekeAealAsks cdst", "haeas apkpRprlRhkhah",
    "gaeaoAsgsMsmpMlhl hlOloiOehefe", "gbmBogoLoljLereVexg ljxjXoroLolj lkfkAkahAefeLelh",                     /* ss ae */
    "ghnAnaiAeheOeoiOnhn oiOodt ftlr", "fioQoqjQeieAeajAoio bdpp", "gasaa ajAoioQoqjQeieAeaj",         /* eth o/ thorn */
    "hanmh ahmn", "halql ipiq igih"                                                             /* times, divided by */
};
static const char tni_latin_marks[] = "`'^~\"o,";
static const char *const tni_mark_strokes[] = {            /* above a small letter; the cedilla is below */
    "aauer", "aeuar", "aareuir", "aarCufsIqkt", "aaras hrhs", "adqAqasAuduGugsGqdq", "acecdGdgbGacaaa"
};
static const char tni_dotless[] = "haoae";

/* The strokes of a character, with an optional mark above or below them, and its size and height. */
typedef struct tni_sign { const char *body, *mark; double size, up, mark_up; } tni_sign;

static const char *tni_greek_glyph(uint32_t code)
{
    const char *glyph = code >= 0x391 && code < 0x391 + 25 ? tni_greek[0][code - 0x391]
                      : code >= 0x3B1 && code < 0x3B1 + 25 ? tni_greek[1][code - 0x3B1] : NULL;
    return glyph && glyph[1] == 0 ? tni_glyphs[glyph[0] - 32] : glyph;
}

static const char *tni_glyph(uint32_t code)
{
    static const uint32_t more[] = {0xB1, 0xB7, 0xD7, 0x2212, 0xB0, 0xAB, 0xBB};
    const char *greek = tni_greek_glyph(code == 0xB5 ? 0x3BC : code);               /* the sign micro is a mu */
    int k = 0;
    if (code >= 32 && code < 127) return tni_glyphs[code - 32];
    if (greek) return greek;
    while (k < 7 && more[k] != code) k++;
    return tni_glyphs[TNI_GLYPH_MORE + k];
}

/* The digit of a superscript or subscript, and how far up it is; 0: the character is neither. */
static uint32_t tni_script_digit(uint32_t code, double *up)
{
    *up = code >= 0x2080 ? -3 : 7;
    if (code == 0xB9) return '1';
    if (code == 0xB2 || code == 0xB3) return '0' + code - 0xB0;
    if (code == 0x207A || code == 0x208A) return '+';
    if (code == 0x207B || code == 0x208B) return 0x2212;
    if (code == 0x2070 || (code >= 0x2074 && code <= 0x2079)) return '0' + code - 0x2070;
    return code >= 0x2080 && code <= 0x2089 ? '0' + code - 0x2080 : 0;
}

static void tni_sign_of(tni_sign *s, uint32_t code)
{
    uint32_t digit = tni_script_digit(code, &s->up);
    s->mark = NULL;
    s->size = digit ? 0.62 : 1;
    s->mark_up = 0;
    if (!digit) s->up = 0;
    s->body = tni_glyph(digit ? digit : code);
    if (code < 0xC0 || code > 0xFF) return;
    char base = tni_latin_base[code - 0xC0];
    s->body = base <= ':' ? tni_latin_own[base - '0'] : base == 'i' ? tni_dotless : tni_glyphs[base - 32];
    const char *mark = strchr(tni_latin_marks, tni_latin_mark[code - 0xC0]);
    s->mark = mark ? tni_mark_strokes[mark - tni_latin_marks] : NULL;
    s->mark_up = base < 'a' && mark && *mark != ',' ? 3 : 0;
}

/* The next character of a text; invalid UTF-8 counts as one unknown character per byte.
   A hyphen that begins a text, or a number within it, is a minus sign. */
TNI_COLD_FN uint32_t tni_text_next(const char **at, const char *end, uint32_t before)
{
    const unsigned char *s = (const unsigned char *)*at;
    int      more = *s >= 0xF0 && *s < 0xF8 ? 3 : *s >= 0xE0 && *s < 0xF0 ? 2 : *s >= 0xC2 && *s < 0xE0 ? 1 : 0, k;
    uint32_t code = more ? *s & (0x3Fu >> more) : *s;
    *at += 1;
    if (*s == '-' && *at < end && (before == 0 || (before < '0' && ((**at >= '0' && **at <= '9') || **at == '.'))))
        return 0x2212;
    for (k = 1; k <= more && end - *at >= k && (s[k] & 0xC0) == 0x80; k++) code = code << 6 | (s[k] & 0x3Fu);
    if (more == 0 || k <= more) return *s < 128 ? *s : 0xFFFD;
    *at += more;
    return code;
}

static int tni_glyph_width(const char *glyph)            /* of the ink, in steps */
{
    int width = 0;
    for (const char *p = glyph + 1; *p; p += 2) {
        if (*p == ' ') p++;
        width = (int)tni_max(width, (*p | 32) - 'a');
    }
    return width;
}

static int tni_sign_width(const tni_sign *s)
{
    int width = tni_glyph_width(s->body);
    return s->mark ? (int)tni_max(width, tni_glyph_width(s->mark)) : width;
}

static double tni_sign_advance(const tni_sign *s)         /* in units */
{
    return (s->body[0] - 'a' + tni_sign_width(s)) * TNI_GLYPH_STEP * s->size;
}

/* The bytes of a text that fit into `max_width`, and their width. */
static size_t tni_text_fit(const char *s, size_t bytes, double size, double max_width, double *width)
{
    const char *at = s, *end = s + bytes, *next = s;
    uint32_t    code = 0;
    for (*width = 0; at < end; at = next) {
        tni_sign sign;
        tni_sign_of(&sign, code = tni_text_next(&next, end, code));
        double advance = tni_sign_advance(&sign) * size / TNI_FONT_UNITS;
        if (*width + advance > max_width) break;
        *width += advance;
    }
    return (size_t)(at - s);
}

static double tni_text_width(const char *s, size_t bytes, double size)
{
    double width;
    tni_text_fit(s, bytes, size, HUGE_VAL, &width);
    return width;
}

/* The baseline, the x-height and the height of capitals are on whole pixels, so that small text is crisp. */
static double tni_hint(double y, double unit)
{
    static const double line[] = {-4, 0, 10, 14, 24};
    int    k = y < 0 ? 0 : y < 10 ? 1 : y < 14 ? 2 : 3;
    double low = floor(line[k] * unit + 0.5), high = floor(line[k + 1] * unit + 0.5);
    return low + (high - low) * (y - line[k]) / (line[k + 1] - line[k]);
}

typedef struct tni_pen { tni_canvas *canvas; double x, y, unit, radius; bool upwards; } tni_pen;

static void tni_pen_line(const tni_pen *pen, const double a[2], const double b[2])
{
    double x = pen->x, y = pen->y;
    if (pen->upwards) tni_cover_stroke(pen->canvas, x - a[1], y - a[0], x - b[1], y - b[0], pen->radius);
    else tni_cover_stroke(pen->canvas, x + a[0], y - a[1], x + b[0], y - b[1], pen->radius);
}

static void tni_pen_curve(const tni_pen *pen, const double a[2], const double b[2], const double c[2])
{
    double from[2], to[2];
    int    steps = 4 + (int)(pen->unit * 2);
    from[0] = a[0]; from[1] = a[1];
    for (int k = 1; k <= steps; k++) {
        double t = (double)k / steps;
        for (int i = 0; i < 2; i++) to[i] = (1 - t) * (1 - t) * a[i] + 2 * t * (1 - t) * b[i] + t * t * c[i];
        tni_pen_line(pen, from, to);
        from[0] = to[0]; from[1] = to[1];
    }
}

/* `right` is in steps, `up` in units. */
static void tni_pen_glyph(const tni_pen *pen, const char *glyph, double right, double up)
{
    double p[3][2] = {{0, 0}, {0, 0}, {0, 0}};            /* where the pen is, the bend, the new point */
    bool   down = false, bent = false;
    for (const char *s = glyph + 1; *s; s += 2) {
        if (*s == ' ') { s++; down = false; }
        p[2][0] = ((*s | 32) - 'a' + right) * TNI_GLYPH_STEP * pen->unit;
        p[2][1] = tni_hint(s[1] - 'e', pen->unit) + up * pen->unit;
        if (*s < 'a') {
            memcpy(p[1], p[2], sizeof p[1]);
            bent = true;
            continue;
        }
        if (bent) tni_pen_curve(pen, p[0], p[1], p[2]);
        else if (down) tni_pen_line(pen, p[0], p[2]);
        memcpy(p[0], p[2], sizeof p[0]);
        down = true;
        bent = false;
    }
}

/* A sign's strokes and those of its mark, each in the middle of the sign's width. */
static void tni_pen_sign(const tni_pen *at, const tni_sign *s)
{
    tni_pen pen = *at;
    double  side = (s->body[0] - 'a') / 2.0, width = tni_sign_width(s);
    pen.unit *= s->size;
    tni_pen_glyph(&pen, s->body, side + (width - tni_glyph_width(s->body)) / 2, s->up / s->size);
    if (s->mark) tni_pen_glyph(&pen, s->mark, side + (width - tni_glyph_width(s->mark)) / 2, s->mark_up);
}

/* Text for the SVG: its characters, as they are drawn, and their place. */
static void tni_mark_text(tni_canvas *c, const char *s, size_t bytes, double x, double y, double size, double align,
                          bool upwards)
{
    tni_list *letters = &tni_picture_of(c->image)->letters;
    size_t    from = letters->count;
    for (size_t i = 0; i < bytes && !c->failed; i++) {
        char *to = (char *)tni_list_add(c->image->ctx, letters, "image");
        if (to) *to = s[i];
        else c->failed = true;
    }
    tni_mark *m = tni_mark_add(c, TNI_MARK_TEXT, x, y, size, align, upwards);
    if (!m) return;
    m->v[5] = tni_text_width(s, bytes, size);
    m->text = from;
    m->bytes = bytes;
}

/* align: 0 begins at x on the baseline y, 1/2 is centred there, 1 ends there. `upwards`: rotated by a right angle, so that it is
   read from below. */
static void tni_cover_text(tni_canvas *c, const char *s, size_t bytes, double x, double y, double size, double align,
                           bool upwards)
{
    const char *end = s + bytes;
    uint32_t    code = 0;
    tni_pen     pen;
    double      back = align * tni_text_width(s, bytes, size);
    tni_mark_text(c, s, bytes, x, y, size, align, upwards);
    pen.canvas = c;
    pen.unit = size / TNI_FONT_UNITS;
    pen.radius = fmax(0.86 * pen.unit, 0.5);
    pen.upwards = upwards;
    pen.x = upwards ? floor(x) + 0.5 : x - back;
    pen.y = upwards ? y + back : floor(y) + 0.5;
    while (s < end && fabs(pen.x) < 1e7 && fabs(pen.y) < 1e7) {
        tni_sign sign;
        tni_sign_of(&sign, code = tni_text_next(&s, end, code));
        double advance = tni_sign_advance(&sign) * pen.unit;
        tni_pen_sign(&pen, &sign);
        if (upwards) pen.y -= advance;
        else pen.x += advance;
    }
}

/* ---- labels and paragraphs ---------------------------------- >>image-words */
enum { TNI_LINES = 6 };                                                    /* of a paragraph      */

TNI_COLD_FN double tni_label_width(const char *s, double size) { return s ? tni_text_width(s, strlen(s), size) : 0; }

/* One line of text. Text wider than `max_width` is set smaller, down to 3/4, then shortened to end with "...". */
TNI_COLD_FN void tni_draw_label(tni_canvas *c, const char *s, double x, double y, double size, double align, bool upwards,
                                double max_width, uint32_t ink)
{
    double width = tni_label_width(s, size);
    if (!s) return;
    if (width > max_width) {
        size *= fmax(max_width / width * 0.999, 0.75);
        width = tni_label_width(s, size);
    }
    if (width > max_width) {
        double dots = tni_label_width("...", size);
        size_t bytes = tni_text_fit(s, strlen(s), size, max_width - dots, &width);
        if (dots > max_width) return;
        double back = width - align * (width + dots);
        tni_cover_text(c, s, bytes, upwards ? x : x + back, upwards ? y - back : y, size, 1, upwards);
        tni_cover_text(c, "...", 3, upwards ? x : x + back, upwards ? y - back : y, size, 0, upwards);
    } else tni_cover_text(c, s, strlen(s), x, y, size, align, upwards);
    tni_paint(c, ink, 1);
}

/* The bytes of the first line: up to a line's end, else up to the last blank that fits, else all that fit. */
static size_t tni_line_bytes(const char *s, double size, double max_width)
{
    size_t line = strcspn(s, "\n"), blank;
    double width;
    if (line > 0 && s[line] == '\n' && s[line - 1] == '\r') line--;
    size_t end = tni_text_fit(s, line, size, max_width, &width);
    if (end == line) return line;
    for (blank = end; blank > 0 && s[blank] != ' ';) blank--;
    return blank > 0 ? blank : (size_t)tni_max((int64_t)end, 1);
}

/* Lines centred at x below y, wrapped at `max_width`; returns their height. Without a canvas they are only measured. */
TNI_COLD_FN double tni_paragraph(tni_canvas *c, const char *s, double x, double y, double size, double max_width)
{
    double height = 0;
    for (int lines = 0; s && *s && lines < TNI_LINES; lines++) {
        size_t bytes = tni_line_bytes(s, size, max_width);
        if (c) {
            tni_cover_text(c, s, bytes, x, y + height + size, size, 0.5, false);
            tni_paint(c, TNI_TEXT_INK, 1);
        }
        height += ceil(size * 1.35);
        s += bytes;
        while (*s == ' ') s++;
        if (*s == '\r' && s[1] == '\n') s++;
        if (*s == '\n') s++;
    }
    return height;
}

#endif /* TN_NO_IMAGE */
