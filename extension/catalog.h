/*
 * catalog.h - models as they are stored: tables of schema pgtrain, written and read as the extension's owner.
 */
#ifndef PGT_CATALOG_H
#define PGT_CATALOG_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/jsonb.h"

#include "engine/protocol.h"
#include "extension/compat.h"
#include "loader/encoder.h"

/* One tensor of a state_dict. */
typedef struct StoredTensor
{
	TensorHeader header;
	float	   *data;			/* header.values, MCXT_ALLOC_HUGE */
} StoredTensor;

/* Everything a version is.  Strings and arrays live in the context it was made in. */
typedef struct ModelVersion
{
	int64		model_id;
	char	   *name;			/* the model's */
	int32		version;
	Task		task;
	LossKind	loss;
	char	   *source;			/* as the user gave it */
	char	   *target;			/* column */
	Oid			target_type;
	int			nclasses;
	char	  **classes;		/* labels in their text form, in the order of the outputs */
	EncoderSet *encoders;
	RowShape	input;
	Jsonb	   *architecture;	/* output layer included */
	int32		outputs;
	double		target_mean,	/* regression: output * stddev + mean */
				target_stddev;
	Jsonb	   *options;		/* every argument of train_model, as used */
	int64		rows_used,
				rows_skipped,
				train_rows,
				validation_rows;
	char	   *device;			/* "cpu (AVX2, 2 threads)" */
	char	   *precision;		/* "fp32", "bf16" or "fp16" */
	char	   *libraries;
	int64		seed;
	double		seconds_loading,
				seconds_training;
	int64		parameters;
	List	   *epochs;			/* of EpochReport * */
	List	   *tensors;		/* of StoredTensor *, in state_dict order */
} ModelVersion;

/* What a reference stands for, and who may use it. */
typedef struct ModelReference
{
	int64		model_id;
	int32		version;
	/* With model_id and version: identity of what is stored.  A version is never changed, only made and dropped. */
	TransactionId version_xmin;
	TransactionId model_xmin;	/* who made the model's row as it was read */
	bool		current;		/* the newest committed state (or our own) says the same as the active snapshot */
	char	   *name;
	int32		deployed_version;
	Oid			owner;
	int			ngrantees;
	Oid		   *grantees;		/* InvalidOid: everybody */
} ModelReference;

/* Before training: may the caller train this model?  ERROR if it exists and is somebody else's, or the name is not valid. */
extern void CatalogCheckTrain(const char *name);

/* Store a new version of version->name (making the model if there is none), deploy it; sets model_id and version. */
extern void CatalogSaveVersion(ModelVersion *version);

/*
 * Resolve 'name' (the deployed version) or 'name@version' and read it, with its tensors, into the current
 * context.  Checks the caller's rights.  A name that does not exist is an ERROR that hints at the nearest one.
 */
extern ModelVersion *CatalogLoadVersion(const char *reference, bool with_tensors);

/*
 * The parts of CatalogLoadVersion.  CatalogResolve looks a reference up under the active snapshot, so that all
 * participants of a query agree, and does not check rights.  CatalogReadVersion reads all but the tensors.
 */
extern void CatalogResolve(const char *reference, ModelReference *resolved);
extern void CatalogCheckUse(const ModelReference *resolved);
extern ModelVersion *CatalogReadVersion(const ModelReference *resolved);

/* Read the tensors one by one, in state_dict order; data is valid during the call only. */
typedef void (*TensorVisitor) (void *arg, const TensorHeader *header, const float *data);
extern void CatalogReadTensors(const ModelReference *resolved, TensorVisitor visit, void *arg);

/* Store the tensors of a version: called by CatalogSaveVersion, inside a catalog scope. */
extern void CatalogWriteTensors(int64 model_id, int32 version, const List *tensors);

/*
 * A catalog scope: SPI connected, running as the owner of the catalog under a search path that nobody else can
 * write to.  An error restores what the scope changed with the (sub)transaction.
 */
typedef struct CatalogScope
{
	MemoryContext caller;
	Oid			user;			/* the calling role */
	int			security_context;
	int			guc_level;
} CatalogScope;

extern void CatalogBegin(CatalogScope *scope);
extern void CatalogEnd(CatalogScope *scope);
/* Run one statement in a scope; returns the number of rows.  Read-only ones see the active snapshot. */
extern uint64 CatalogExecute(const char *sql, bool read_only, int nargs, Oid *types, Datum *values,
							 const char *nulls);

/* A model that the caller is about to change: its row is locked. */
typedef struct OwnedModel
{
	int64		model_id;
	int32		deployed_version;
} OwnedModel;

/* Lock a model's row; ERROR unless the caller is (a member of) its owner.  change_key: it will be renamed or dropped. */
extern void CatalogLockModel(const char *name, bool change_key, OwnedModel *model);

/* Split a reference; version is 0 where none is given. */
extern char *CatalogParseReference(const char *reference, int32 *version);
extern void CatalogCheckName(const char *name);
extern void CatalogCheckOwner(Oid role, Oid owner, const char *name);
extern void CatalogMissingVersion(const char *name, int64 model_id, int32 version) pg_attribute_noreturn();

/*
 * Tell every session, this one included, that what is cached of the catalog may be wrong.  Others learn it when
 * the transaction commits, this one at the next command, and again if the transaction or subtransaction aborts.
 */
extern void CatalogChanged(void);

/* pg_class OID of pgtrain.model, whose relation cache invalidations carry that news. */
extern Oid	CatalogModelRelid(void);

extern const char *TaskName(Task task);
extern const char *LossName(LossKind loss);

#endif							/* PGT_CATALOG_H */
