/*
 * json.h - building jsonb, a value at a time.
 *
 * token: WJB_VALUE after a key, WJB_ELEM in an array.  Numbers read back as what they were, whatever
 * extra_float_digits says.
 */
#ifndef PGT_JSON_H
#define PGT_JSON_H

#include "postgres.h"

#include "utils/jsonb.h"

extern void JsonPushKey(JsonbParseState **state, const char *key);
extern void JsonPushText(JsonbParseState **state, JsonbIteratorToken token, const char *text);
extern void JsonPushInteger(JsonbParseState **state, JsonbIteratorToken token, int64 number);
extern void JsonPushFloat(JsonbParseState **state, JsonbIteratorToken token, float number);
extern void JsonPushDouble(JsonbParseState **state, JsonbIteratorToken token, double number);
extern void JsonPushBool(JsonbParseState **state, JsonbIteratorToken token, bool flag);
extern void JsonPushNull(JsonbParseState **state, JsonbIteratorToken token);

#endif							/* PGT_JSON_H */
