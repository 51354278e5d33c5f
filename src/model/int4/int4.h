/* Matrices of 4-bit integers in Hugging Face folders: AWQ, GPTQ and compressed-tensors.
 *
 *   value = scale * (code - zero)     code 0 to 15; a scale and a zero for a row's group of columns
 *
 * The three store codes, scales and zeros in different orders (repack.c draws them). Each matrix
 * becomes one that the rows of the linear ops read, with the same values:
 *
 *   symmetric (zero is 8)   Q4_0:  d (q - 8),   d = scale, q = code               4.5 bits a weight
 *   with zeros              Q5_0:  d (q - 16),  d = scale, q = code - zero + 16    5.5 bits
 *
 * A block has 32 columns, so that a group must be a multiple of 32 columns; its blocks repeat its
 * scale. Both forms are exact where scales are F16. BF16 scales from 2^-17 to 65504 are exact too;
 * smaller ones are rounded to a multiple of 2^-24, which moves a weight by less than 2^-21.
 * Rejected: Q4_1, whose 5 bits a weight hold scale * zero in F16. That product has up to 15
 * significant bits, and its rounding moves all weights of a group together, by up to 0.005 of a
 * step: log-probabilities of the tiny models move by 0.025 to 0.055 (in this form by 1e-6).
 *
 * int4_find reads names and shapes alone; int4_make fills the matrices when weights are wanted. */
#ifndef VT_MODEL_INT4_INT4_H
#define VT_MODEL_INT4_INT4_H

#include <jansson.h>

#include "files/safetensors.h"
#include "model/model.h"

typedef enum int4_kind { INT4_NONE, INT4_AWQ, INT4_GPTQ, INT4_PACKED } int4_kind;

/* The facts of a quantization_config. */
typedef struct int4_form {
    int4_kind kind;
    bool symmetric;
    bool plain_zeros; /* GPTQ: zeros are stored as they are; else less 1 */
    int32_t group;    /* columns that share a scale; 0: a whole row does */
} int4_form;

/* Reads the quantization_config `q` if its method is one of the three; out->kind is INT4_NONE
 * otherwise. Forms that are not run here are refused by the field's name. */
vt_status int4_read_config(const char *path, const json_t *q, const char *method, int4_form *out,
                           vt_err *err);
/* The method as people know it. */
const char *int4_name(int4_kind kind);

typedef struct int4_set int4_set;

/* Finds the packed matrices among a folder's tensors and reserves address space for what they
 * become. `out` lies in m->arena; int4_release gives the address space back. */
vt_status int4_find(vt_model *m, const st_set *files, const int4_form *form, int4_set **out,
                    vt_err *err);
void int4_release(int4_set *s);

/* Makes the matrices, with all CPUs, unless they are there, and counts one more use of them.
 * Threads may call it at the same time. A scale that is not finite or too large, or a zero that is
 * none of a symmetric form, is an error. */
vt_status int4_make(int4_set *s, const char *path, vt_err *err);
/* Makes matrix i alone, with one CPU, for a reader that copies it at once: it is there until the
 * next int4_done. Not for a set that other threads use. */
vt_status int4_make_one(const int4_set *s, int64_t i, const char *path, vt_err *err);
/* Ends a use. After the last one the matrices' memory is given back, unless one of them said that
 * it keeps them; int4_make makes them again. */
void int4_done(int4_set *s, bool keep);

int64_t int4_count(const int4_set *s);
const vt_tensor *int4_at(const int4_set *s, int64_t i);
/* Returns the index of the matrix with this name; -1: there is none. */
int64_t int4_index(const int4_set *s, const char *name);
/* Returns true if tensor i of the folder is a part of one of the matrices. */
bool int4_took(const int4_set *s, int64_t i);

#endif
