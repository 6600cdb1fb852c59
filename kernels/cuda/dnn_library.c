/*
 * dnn_library.c - opening cuDNN.  The CPU stand-in is linked instead of opened.
 */
#include "kernels/cuda/dnn_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

static DnnLibrary library;
static int	complete;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(PGT_CUDASIM)

static void
open_library(void)
{
#define DNN_LINK(name) library.name = cudnn##name;
	DNN_FUNCTIONS(DNN_LINK)
	complete = 1;
}

#else

/* The names by which it may be found: of the version that the headers are of, beside the loader's usual paths. */
static const char *const names[] = {
	"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"
};

static void
open_library(void)
{
	void	   *handle = NULL;
	size_t		i;

	for (i = 0; handle == NULL && i < sizeof(names) / sizeof(names[0]); i++)
		handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (handle == NULL)
		return;
	complete = 1;
#define DNN_LOAD(name) \
	*(void **) &library.name = dlsym(handle, "cudnn" #name); \
	complete = complete && library.name != NULL;
	DNN_FUNCTIONS(DNN_LOAD)
	if (!complete)
		dlclose(handle);
}

#endif

const DnnLibrary *
dnn_library(void)
{
	pthread_once(&once, open_library);
	return complete ? &library : NULL;
}
