/*
 * dnn_library.h - cuDNN, which may be missing, as a table of the functions that are used.
 */
#ifndef PGT_CUDA_DNN_LIBRARY_H
#define PGT_CUDA_DNN_LIBRARY_H

#include <stdbool.h>

#include <cudnn.h>

/* The functions without their prefix "cudnn". */
#define DNN_FUNCTIONS(FUNCTION) \
	FUNCTION(GetVersion) \
	FUNCTION(GetErrorString) \
	FUNCTION(GetLastErrorString) \
	FUNCTION(Create) \
	FUNCTION(Destroy) \
	FUNCTION(SetStream) \
	FUNCTION(BackendCreateDescriptor) \
	FUNCTION(BackendDestroyDescriptor) \
	FUNCTION(BackendSetAttribute) \
	FUNCTION(BackendGetAttribute) \
	FUNCTION(BackendFinalize) \
	FUNCTION(BackendExecute)

typedef struct DnnLibrary
{
#define DNN_MEMBER(name) __typeof__(&cudnn##name) name;
	DNN_FUNCTIONS(DNN_MEMBER)
#undef DNN_MEMBER
} DnnLibrary;

/* The library, opened at the first call for the rest of the process; NULL where it is missing or lacks something. */
extern const DnnLibrary *dnn_library(void);

#endif							/* PGT_CUDA_DNN_LIBRARY_H */
