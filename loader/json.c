/*
 * json.c - building jsonb, a value at a time.
 */
#include "postgres.h"

#include "common/shortest_dec.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "loader/json.h"

static void
PushString(JsonbParseState **state, JsonbIteratorToken token, const char *text)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = unconstify(char *, text);
	value.val.string.len = strlen(text);
	pushJsonbValue(state, token, &value);
}

static void
PushNumeric(JsonbParseState **state, JsonbIteratorToken token, const char *text)
{
	JsonbValue	value;

	value.type = jbvNumeric;
	value.val.numeric = DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(text),
														   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	pushJsonbValue(state, token, &value);
}

void
JsonPushKey(JsonbParseState **state, const char *key)
{
	PushString(state, WJB_KEY, key);
}

void
JsonPushText(JsonbParseState **state, JsonbIteratorToken token, const char *text)
{
	PushString(state, token, text);
}

void
JsonPushInteger(JsonbParseState **state, JsonbIteratorToken token, int64 number)
{
	char		text[32];

	snprintf(text, sizeof(text), INT64_FORMAT, number);
	PushNumeric(state, token, text);
}

void
JsonPushFloat(JsonbParseState **state, JsonbIteratorToken token, float number)
{
	char		text[FLOAT_SHORTEST_DECIMAL_LEN];

	float_to_shortest_decimal_buf(number, text);
	PushNumeric(state, token, text);
}

void
JsonPushDouble(JsonbParseState **state, JsonbIteratorToken token, double number)
{
	char		text[DOUBLE_SHORTEST_DECIMAL_LEN];

	double_to_shortest_decimal_buf(number, text);
	PushNumeric(state, token, text);
}

void
JsonPushBool(JsonbParseState **state, JsonbIteratorToken token, bool flag)
{
	JsonbValue	value;

	value.type = jbvBool;
	value.val.boolean = flag;
	pushJsonbValue(state, token, &value);
}

void
JsonPushNull(JsonbParseState **state, JsonbIteratorToken token)
{
	JsonbValue	value;

	value.type = jbvNull;
	pushJsonbValue(state, token, &value);
}
