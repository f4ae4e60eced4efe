// A video library for the tests, whose streams are orders of four bytes: what NVIDIA's parser would call back, in turn. Its structs
// are written down here once more, by NVIDIA's headers, so that those in Rust are checked.
//
//   F w h c   the format: w and h blocks of 16 pixels, 2 pixels to cut off at the left and 4 at the top; chroma c % 16, c / 16 + 8 bits
//   D i v r   decode a picture of value v into surface i; the decoder returns r
//   H i v r   the same, as the first of two fields; the next D is the second
//   S i s 0   show surface i; the engine reports status s
//   N 0 0 0   the end

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_SUPPORTED = 801 };
typedef uint32_t result;

typedef struct {
    int codec, chroma;
    unsigned bits_minus_8, reserved1[3];
    unsigned char supported, engines;
    unsigned short formats;
    unsigned max_width, max_height, max_blocks;
    unsigned short min_width, min_height;
    unsigned reserved2[11];
} caps;

typedef struct {
    unsigned long width, height, surfaces;
    int codec, chroma;
    unsigned long flags, bits_minus_8, intra, max_width, max_height, reserved1;
    short display[4];
    int format, deinterlace;
    unsigned long target_width, target_height, outputs;
    void *lock;
    short target[4];
    unsigned long histogram, reserved2[4];
} create;

typedef struct {
    int codec;
    unsigned rate[2];
    unsigned char progressive, luma_minus_8, chroma_minus_8, min_surfaces;
    unsigned width, height;
    int display[4], chroma;
    unsigned bitrate;
    int aspect[2];
    unsigned char signal, primaries, transfer, matrix;
    unsigned more;
} format;

typedef struct { unsigned long flags, bytes; const unsigned char *payload; long long timestamp; } packet;
typedef struct { int index, progressive, top_first, repeat; long long timestamp; } shown;
typedef struct { int width, height, index, field, bottom, second; char rest[4256]; } picture;

typedef struct {
    int codec;
    unsigned max_surfaces, clock, threshold, delay, reserved1[5];
    void *user;
    int (*sequence)(void *, format *);
    int (*decode)(void *, picture *);
    int (*display)(void *, shown *);
    void *reserved2[8];
} parser;

typedef struct {
    create made;
    unsigned long mapped;
    unsigned char values[32];
    int status;
} decoder;

// What was not freed, and calls against the rules.
static int alive, wrong;
static int next_status[32], next_result, last = -1;
int stub_alive(void) { return alive; }
int stub_wrong(void) { return wrong; }

result cuvidGetDecoderCaps(caps *c) {
    c->supported = c->chroma == 1 || c->chroma == 0;
    c->formats = c->bits_minus_8 ? 3 : 1;
    c->engines = 2;
    c->max_width = c->max_height = 4096;
    c->max_blocks = 65536;
    c->min_width = c->min_height = 48;
    return SUCCESS;
}

result cuvidCreateDecoder(void **made, create *info) {
    decoder *d = calloc(1, sizeof *d);
    d->made = *info;
    wrong += info->surfaces < 3 || info->surfaces > 32 || info->outputs < 1 || info->format != (info->bits_minus_8 ? 1 : 0);
    wrong += info->target_width != info->width || info->target_height != info->height || info->lock != NULL;
    alive++;
    *made = d;
    return SUCCESS;
}

result cuvidDestroyDecoder(void *destroyed) {
    decoder *d = destroyed;
    wrong += d->mapped != 0;
    free(d);
    alive--;
    return SUCCESS;
}

result cuvidDecodePicture(void *in, picture *p) {
    decoder *d = in;
    wrong += p->index < 0 || (unsigned long)p->index >= d->made.surfaces;
    d->values[p->index] = (unsigned char)p->width;
    return next_result;
}

result cuvidGetDecodeStatus(void *in, int index, void *status) {
    (void)in;
    *(int *)status = next_status[index];
    return SUCCESS;
}

result cuvidMapVideoFrame64(void *in, int index, unsigned long long *address, unsigned *pitch, char *info) {
    decoder *d = in;
    void *stream = *(void **)(info + 56);
    if (d->mapped >= d->made.outputs || !stream)
        return INVALID_VALUE;
    *pitch = d->made.width * (d->made.format == 1 ? 2 : 1) + 64;
    size_t bytes = *pitch * d->made.height * 3 / 2;
    unsigned char *memory = malloc(bytes);
    memset(memory, d->values[index], bytes);
    d->mapped++;
    alive++;
    *address = (uintptr_t)memory;
    return SUCCESS;
}

result cuvidUnmapVideoFrame64(void *in, unsigned long long address) {
    decoder *d = in;
    wrong += d->mapped == 0;
    d->mapped--;
    alive--;
    free((void *)(uintptr_t)address);
    return SUCCESS;
}

result cuvidCreateVideoParser(void **made, parser *info) {
    parser *p = malloc(sizeof *p);
    *p = *info;
    wrong += !info->sequence || !info->decode || !info->display || info->delay != 0;
    alive++;
    *made = p;
    return SUCCESS;
}

result cuvidDestroyVideoParser(void *destroyed) {
    free(destroyed);
    alive--;
    return SUCCESS;
}

result cuvidParseVideoData(void *with, packet *given) {
    parser *p = with;
    int second = 0;
    // A timestamp, and exactly one picture; or the end, at which the last picture comes out.
    wrong += given->flags != (given->bytes ? 2 | 8 : 1);
    if (!given->bytes && last >= 0) {
        shown s = { .index = last, .progressive = 1, .timestamp = 99 };
        last = -1;
        return p->display(p->user, &s) ? SUCCESS : NOT_SUPPORTED;
    }
    for (const unsigned char *o = given->payload; o + 4 <= given->payload + given->bytes; o += 4) {
        int ok = 1;
        if (o[0] == 'F') {
            format f = { .codec = p->codec, .progressive = 1, .min_surfaces = 3, .width = o[1] * 16, .height = o[2] * 16 };
            f.luma_minus_8 = f.chroma_minus_8 = o[3] / 16;
            f.chroma = o[3] % 16;
            f.display[0] = 2;
            f.display[1] = 4;
            f.display[2] = f.width;
            f.display[3] = f.height;
            f.signal = 8;
            f.matrix = 1;
            ok = p->sequence(p->user, &f);
            wrong += ok == 1 || ok == 2;
        } else if (o[0] == 'D' || o[0] == 'H') {
            picture q = { .index = o[1], .width = o[2], .field = second || o[0] == 'H', .second = second };
            next_result = o[3];
            second = o[0] == 'H';
            ok = p->decode(p->user, &q);
            last = o[1];
        } else if (o[0] == 'S') {
            shown s = { .index = o[1], .progressive = 1, .timestamp = given->timestamp };
            next_status[o[1]] = o[2];
            ok = p->display(p->user, &s);
        } else if (o[0] == 'N') {
            ok = p->display(p->user, NULL);
        }
        if (!ok)
            return NOT_SUPPORTED;
    }
    return SUCCESS;
}
