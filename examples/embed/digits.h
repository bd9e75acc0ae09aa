/* digits.h: what train.c and both predict programs agree on: the display, and the shape of the network that reads it */
#ifndef DIGITS_H
#define DIGITS_H

enum { SEGMENTS = 7, HIDDEN = 12, DIGITS = 10 };

/*    a     Of seven segments, a b c d e f g.
    f   b
      g
    e   c
      d    */
static const float segments_of[DIGITS][SEGMENTS] = {
    {1, 1, 1, 1, 1, 1, 0}, {0, 1, 1, 0, 0, 0, 0}, {1, 1, 0, 1, 1, 0, 1}, {1, 1, 1, 1, 0, 0, 1}, {0, 1, 1, 0, 0, 1, 1},
    {1, 0, 1, 1, 0, 1, 1}, {1, 0, 1, 1, 1, 1, 1}, {1, 1, 1, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 0, 1, 1}
};
#endif
