/* "tree" of a story.json: the prefix tree when the story was told, and the request's path in it. */
#ifndef VT_STORY_TREE_H
#define VT_STORY_TREE_H

#include "story/record/record.h"

void story_put_tree(vt_json *w, const story_input *in, const story_record *r);

#endif
