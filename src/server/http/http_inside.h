/* The files of the HTTP reader share this (server/http/http.h). */
#ifndef VT_SERVER_HTTP_HTTP_INSIDE_H
#define VT_SERVER_HTTP_HTTP_INSIDE_H

#include "base/buf.h"
#include "server/http/http.h"

/* Where in a request the reader is. */
typedef enum http_part {
    HTTP_START,      /* before the first byte of the request line */
    HTTP_LINE,       /* within the request line */
    HTTP_HEADERS,    /* within the header lines */
    HTTP_LENGTH,     /* within a body of known length */
    HTTP_CHUNK_SIZE, /* within the line that says how long a chunk is */
    HTTP_CHUNK,      /* within the bytes of a chunk */
    HTTP_CHUNK_CR,   /* at the CR LF behind a chunk */
    HTTP_CHUNK_LF,
    HTTP_TRAILERS, /* within the lines behind the last chunk */
    HTTP_WHOLE,
    HTTP_WRONG,
} http_part;

struct vt_http_reader {
    vt_http_limits limits;
    http_part part;
    vt_http_request request;

    vt_buf head;       /* the request line and the header lines; names and values point into it */
    size_t line_at;    /* where in `head` the line begins that is being read */
    size_t headers_at; /* where in `head` the first header line begins */
    int32_t n_lines;   /* header lines so far */
    int n_skipped;     /* bytes of an empty line before the request line */
    /* Places in `head` of what the request line holds, until `head` has stopped growing. */
    size_t path_at, query_at, authority_at;
    size_t authority_len; /* 0: the target has no host */
    bool has_query;
    vt_http_header *header; /* [header_cap] */
    int32_t header_cap;

    vt_buf body;
    uint64_t left;    /* bytes that are still to come of the body or of the chunk */
    int n_digits;     /* of the chunk size so far */
    bool size_ended;  /* the CR behind the chunk size has come */
    vt_buf trailer;   /* the trailer line that is being read */
    size_t n_trailer; /* bytes of all trailer lines */

    int status;
    const char *why;
};

/* Returns true if a byte may be part of a method or of a header's name (RFC 9110, "token"). */
bool http_is_token(unsigned char c);
/* 0 to 15, or -1. */
int http_hex_digit(char c);
/* Refuses the request; false, so that a parser can return it. `why` is a literal. */
bool http_refuse(vt_http_reader *r, int status, const char *why);
/* The request line, head.data[0 .. len), CR LF behind it. */
bool http_read_request_line(vt_http_reader *r, size_t len);
/* One header line of len bytes without its CR LF. Cuts it up in place: the name becomes lower case
 * and ends with a NUL, and so does the value. */
bool http_cut_header(vt_http_reader *r, char *line, size_t len, vt_http_header *out);
/* All header lines, once the head is whole: cuts them up, and finds out how the body is framed. */
bool http_read_headers(vt_http_reader *r);

#endif
