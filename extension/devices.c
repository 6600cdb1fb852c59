/*
 * devices.c - the SQL function train_devices: what can train on this machine.
 *
 * A device is opened by a process of its own, never by a backend: see engine_process.h.
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"

#include "extension/compat.h"
#include "extension/engine_process.h"

#define DEVICE_COLUMNS 9

/* NULL for an empty text. */
static void
SetText(Datum *values, bool *nulls, int column, const char *text)
{
	nulls[column] = text[0] == '\0';
	if (!nulls[column])
		values[column] = CStringGetTextDatum(text);
}

static void
PutDevice(ReturnSetInfo *result, const ListedDevice *device)
{
	Datum		values[DEVICE_COLUMNS] = {0};
	bool		nulls[DEVICE_COLUMNS] = {0};
	int			capability = device->info.compute_capability;

	values[0] = CStringGetTextDatum(device->name);
	values[1] = CStringGetTextDatum(device->info.name);
	values[2] = Int64GetDatum((int64) device->info.memory_bytes);
	values[3] = Int64GetDatum((int64) device->memory_free_bytes);
	SetText(values, nulls, 4, capability > 0 ? psprintf("%d.%d", capability / 10, capability % 10) : "");
	values[5] = BoolGetDatum(device->info.bf16);
	values[6] = BoolGetDatum(device->info.f16);
	SetText(values, nulls, 7, device->info.libraries);
	nulls[8] = true;
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Why there is no GPU, or not all of them. */
static void
PutReason(ReturnSetInfo *result, const Error *reason)
{
	Datum		values[DEVICE_COLUMNS] = {0};
	bool		nulls[DEVICE_COLUMNS];

	memset(nulls, true, sizeof(nulls));
	SetText(values, nulls, 0, "cuda");
	SetText(values, nulls, 8, psprintf("%s%s%s", reason->message, reason->detail[0] != '\0' ? ": " : "", reason->detail));
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

PG_FUNCTION_INFO_V1(pgt_train_devices);

Datum
pgt_train_devices(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	EngineProcess *engine;
	DeviceList *list = palloc(sizeof(DeviceList));

	CompatMaterializedSRF(fcinfo);
	engine = EngineStartListing();
	memcpy(list, EngineExpect(engine, MSG_DEVICES, sizeof(DeviceList)), sizeof(DeviceList));
	EngineRelease(engine);
	for (int i = 0; i < Min(list->count, MAX_LISTED_DEVICES); i++)
		PutDevice(result, &list->devices[i]);
	if (list->no_cuda.status != STATUS_OK)
		PutReason(result, &list->no_cuda);
	return (Datum) 0;
}
