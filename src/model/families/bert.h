/* Facts of BERT that RoBERTa shares. */
#ifndef VT_MODEL_FAMILIES_BERT_H
#define VT_MODEL_FAMILIES_BERT_H

#include "model/family.h"

/* The last four are those of a classifier, to which RoBERTa gives other names. */
enum { VT_BERT_ROLES = 27, VT_BERT_ENCODER_ROLES = 23 };
extern const vt_family_role vt_bert_roles[VT_BERT_ROLES];

/* Reads what config.json has beyond a shape: positions, types of texts, what is not computed. */
vt_status vt_bert_read_config(hf_reader *c);

#endif
