/*
 * test_session.c - whole runs of the engine program over its socket, and what breaks them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/model.h"
#include "regress/unit/engine/client.h"
#include "regress/unit/engine/common.h"

#define WIDTH 4
#define RECORD_BYTES (4 * WIDTH + 4)
#define TIMEOUT_MS 20000

/* The frames that a backend sends in a run, ready to be sent or spoiled. */
typedef struct Frame
{
	MessageType type;
	size_t		bytes;
	char		data[4096];
} Frame;

static Frame
load_frame(double validation_fraction)
{
	Frame		f = {.type = MSG_LOAD};
	DatasetSpec *spec = (DatasetSpec *) f.data;
	RecordLayout *layout = (RecordLayout *) (spec + 1);

	spec->task = TASK_CLASSIFICATION;
	spec->standardize = 1;
	spec->stratify = 1;
	spec->validation_fraction = validation_fraction;
	spec->seed = 1;
	spec->input = FLAT(WIDTH);
	layout->record_bytes = RECORD_BYTES;
	layout->target_offset = 4 * WIDTH;
	layout->input_width = WIDTH;
	layout->nsegments = 1;
	layout->segments[0] = (Segment)
	{
		DTYPE_F32, WIDTH, 0, 0
	};
	f.bytes = sizeof(DatasetSpec) + sizeof(RecordLayout) + sizeof(Segment);
	return f;
}

static Frame
rows_frame(uint32_t slot, uint32_t rows)
{
	Frame		f = {.type = MSG_ROWS,.bytes = sizeof(RowsMessage)};

	*(RowsMessage *) f.data = (RowsMessage)
	{
		slot, rows, SPLIT_TRAIN, 0
	};
	return f;
}

static Frame
end_rows_frame(void)
{
	Frame		f = {.type = MSG_END_ROWS,.bytes = 12};

	/* provisional class 0 is final class 1 */
	((uint32_t *) f.data)[0] = 2;
	((int32_t *) f.data)[1] = 1;
	((int32_t *) f.data)[2] = 0;
	return f;
}

static Frame
train_frame(const char *layers, int32_t epochs)
{
	Frame		f = {.type = MSG_TRAIN};
	TrainSpec  *spec = train_spec(layers, FLAT(WIDTH), TASK_CLASSIFICATION, LOSS_CROSS_ENTROPY, 2);

	spec->epochs = epochs;
	f.bytes = sizeof(TrainSpec) + spec->nlayers * sizeof(LayerSpec);
	memcpy(f.data, spec, f.bytes);
	free(spec);
	return f;
}

static bool
send_frame(Client *c, const Frame *f)
{
	return frame_send(c->fd, f->type, f->data, f->bytes, NULL) == STATUS_OK;
}

/* Put rows [first, first + n) into a slot. */
static void
fill_slot(Client *c, uint32_t slot, const Rows *rows, size_t first, size_t n)
{
	char	   *to = ring_slot(c->ring, c->slot_bytes, slot);
	size_t		i;

	for (i = 0; i < n; i++)
	{
		int32_t		provisional = 1 - ((int32_t *) rows->targets)[first + i];

		memcpy(to + i * RECORD_BYTES, rows->x + (first + i) * WIDTH, 4 * WIDTH);
		memcpy(to + i * RECORD_BYTES + 4 * WIDTH, &provisional, 4);
	}
}

/* Receive the frame that must come next. */
static void *
expect(Client *c, MessageType expected, size_t bytes)
{
	MessageType type = 0;
	void	   *data;
	size_t		got = 0;

	if (!client_receive(c, &type, &data, &got, TIMEOUT_MS))
	{
		test_fail(__FILE__, __LINE__, "no frame came where %d was expected", (int) expected);
		return NULL;
	}
	if (type != expected || got != bytes)
	{
		test_fail(__FILE__, __LINE__, "frame %d of %zu bytes came where %d of %zu was expected%s%s", (int) type, got,
				  (int) expected, bytes, type == MSG_ERROR ? ": " : "", type == MSG_ERROR ? ((Error *) data)->message : "");
		free(data);
		return NULL;
	}
	return data;
}

/* Hello, dataset and rows in slots of 512: up to, not including, MSG_END_ROWS. */
static bool
load(Client *c, const Rows *rows, double validation_fraction)
{
	void	   *data = expect(c, MSG_HELLO, sizeof(EngineHello));
	const EngineHello *hello = data;
	Frame		f = load_frame(validation_fraction);
	size_t		first;
	uint32_t	slot = 0;
	bool		ok = hello != NULL;

	if (ok)
	{
		CHECK(hello->protocol_version == PROTOCOL_VERSION && hello->backend_abi_version == BACKEND_ABI_VERSION &&
			  hello->trainspec_bytes == sizeof(TrainSpec) + sizeof(LayerSpec), "versions");
		CHECK(hello->pid == c->pid, "pid %d, not %d", hello->pid, (int) c->pid);
		CHECK(strncmp(hello->device.name, "cpu", 3) == 0 && hello->device.threads >= 1, "device %s", hello->device.name);
	}
	free(data);
	client_ring(c, RECORD_BYTES);
	ok = ok && send_frame(c, &f);
	for (first = 0; first < rows->rows && ok; first += 512, slot = (slot + 1) % RING_SLOTS)
	{
		size_t		n = rows->rows - first < 512 ? rows->rows - first : 512;

		fill_slot(c, slot, rows, first, n);
		f = rows_frame(slot, (uint32_t) n);
		ok = send_frame(c, &f);
		data = expect(c, MSG_SLOT_FREE, sizeof(uint32_t));
		ok = ok && data != NULL;
		if (ok)
			CHECK(*(uint32_t *) data == slot, "slot %u came back for %u", *(uint32_t *) data, slot);
		free(data);
	}
	return ok;
}

/* Accuracy of a model on rows that the dataset's statistics standardise. */
static double
accuracy(Model *model, const Rows *rows, const double *mean, const double *stddev)
{
	size_t		right = 0,
				i,
				j;
	Error		err;

	for (i = 0; i < rows->rows; i++)
	{
		float		x[WIDTH],
					y[2];

		for (j = 0; j < WIDTH; j++)
			x[j] = (float) ((rows->x[i * WIDTH + j] - mean[j]) / stddev[j]);
		model_forward(model, 1, x, y, &err);
		right += (y[1] > y[0]) == ((int32_t *) rows->targets)[i];
	}
	return (double) right / rows->rows;
}

/* Receive all tensors into a model. */
static void
receive_tensors(Client *c, Model *model, int32_t count)
{
	Error		err = {0};

	for (; count > 0; count--)
	{
		TensorHeader *header = expect(c, MSG_TENSOR, sizeof(TensorHeader));
		float	   *values;
		size_t		bytes,
					done;

		REQUIRE(header != NULL);
		bytes = header->values * sizeof(float);
		values = malloc(bytes);
		for (done = 0; done < bytes;)
		{
			size_t		piece = bytes - done < MAX_DATA_BYTES ? bytes - done : MAX_DATA_BYTES;
			void	   *data = expect(c, MSG_DATA, piece);

			REQUIRE(data != NULL);
			memcpy((char *) values + done, data, piece);
			done += piece;
			free(data);
		}
		CHECK(model_set_tensor(model, header->name, values, header->values, &err) == STATUS_OK, "%s", err.message);
		free(values);
		free(header);
	}
}

TEST(a_run_over_the_socket_learns)
{
	/* the middle layer is larger than a frame of data */
	static const char layers[] = "linear:64 relu linear:5000 relu linear:2";
	Layers		l = layers_parse(layers);
	Rows		rows = rows_two_classes(3000, WIDTH);
	Client		c = client_start(-1);
	Frame		f = end_rows_frame();
	double		mean[WIDTH],
				stddev[WIDTH];
	Model	   *model;
	Error		err = {0};
	void	   *data;
	int			epoch,
				status;

	REQUIRE(load(&c, &rows, 0.2));
	CHECK(send_frame(&c, &f), "END_ROWS");
	data = expect(&c, MSG_LOADED, sizeof(DatasetStats) + 2 * WIDTH * sizeof(double));
	REQUIRE(data != NULL);
	CHECK(((DatasetStats *) data)->train_rows == 2400 && ((DatasetStats *) data)->validation_rows == 600, "rows");
	memcpy(mean, (char *) data + sizeof(DatasetStats), sizeof(mean));
	memcpy(stddev, (char *) data + sizeof(DatasetStats) + sizeof(mean), sizeof(stddev));
	free(data);
	f = train_frame(layers, 4);
	CHECK(send_frame(&c, &f), "TRAIN");
	for (epoch = 1; epoch <= 4; epoch++)
	{
		EpochReport *report = expect(&c, MSG_EPOCH, sizeof(EpochReport));

		REQUIRE(report != NULL);
		CHECK(report->epoch == epoch && report->epochs == 4, "epoch %d of %d", report->epoch, report->epochs);
		CHECK(report->train_rows == 2400 && report->validation_rows == 600, "rows");
		CHECK((report->seconds_left > 0) == (epoch < 4), "seconds left %g", report->seconds_left);
		free(report);
	}
	REQUIRE(model_create(l.spec, l.n, FLAT(WIDTH), 16, &model, &err) == STATUS_OK);
	receive_tensors(&c, model, 6);
	data = expect(&c, MSG_RESULT, sizeof(TrainResult));
	REQUIRE(data != NULL);
	CHECK(((TrainResult *) data)->steps == 4 * 75, "%lld steps", (long long) ((TrainResult *) data)->steps);
	CHECK(((TrainResult *) data)->last.epoch == 4 && ((TrainResult *) data)->last.validation_accuracy > 0.9, "accuracy %g",
		  ((TrainResult *) data)->last.validation_accuracy);
	CHECK(((TrainResult *) data)->peak_rss_bytes > 1 << 20, "peak RSS %lld", (long long) ((TrainResult *) data)->peak_rss_bytes);
	CHECK(((TrainResult *) data)->parameters == 4 * 64 + 64 + 64 * 5000 + 5000 + 10000 + 2, "parameters %lld",
		  (long long) ((TrainResult *) data)->parameters);
	free(data);
	CHECK(accuracy(model, &rows, mean, stddev) > 0.9, "accuracy of the model %g", accuracy(model, &rows, mean, stddev));
	model_free(model);
	status = client_wait(&c, 5000);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %d", status);
	client_close(&c);
	rows_free(&rows);
}

/* The error that a run ends in. */
static void
check_error(Client *c, Status expected, const char *message)
{
	Error	   *err = expect(c, MSG_ERROR, sizeof(Error));
	int			status;

	if (err != NULL)
	{
		CHECK(err->status == (int) expected, "status %d: %s", err->status, err->message);
		CHECK(strstr(err->message, message) != NULL, "message %s", err->message);
	}
	free(err);
	status = client_wait(c, 5000);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1, "wait status %d", status);
}

TEST(errors_come_over_the_socket)
{
	Rows		rows = rows_two_classes(300, WIDTH);
	Client		c = client_start(-1);
	Frame		f;

	REQUIRE(load(&c, &rows, 0.001));
	f = end_rows_frame();
	CHECK(send_frame(&c, &f), "END_ROWS");
	check_error(&c, STATUS_INVALID, "no row is left for validation");
	client_close(&c);

	/* a slot that is not there */
	c = client_start(-1);
	REQUIRE(load(&c, &rows, 0.1));
	f = rows_frame(RING_SLOTS, 1);
	CHECK(send_frame(&c, &f), "ROWS");
	check_error(&c, STATUS_PROTOCOL, "no slot 8");
	client_close(&c);

	/* more rows than a slot holds */
	c = client_start(-1);
	REQUIRE(load(&c, &rows, 0.1));
	f = rows_frame(0, (uint32_t) (c.slot_bytes / RECORD_BYTES + 1));
	CHECK(send_frame(&c, &f), "ROWS");
	check_error(&c, STATUS_PROTOCOL, "do not fit in a slot");
	client_close(&c);

	/* out of order */
	c = client_start(-1);
	free(expect(&c, MSG_HELLO, sizeof(EngineHello)));
	f = end_rows_frame();
	CHECK(send_frame(&c, &f), "END_ROWS");
	check_error(&c, STATUS_PROTOCOL, "where LOAD was expected");
	client_close(&c);

	/* a ring that was never sized */
	c = client_start(-1);
	free(expect(&c, MSG_HELLO, sizeof(EngineHello)));
	f = load_frame(0.1);
	CHECK(send_frame(&c, &f), "LOAD");
	check_error(&c, STATUS_PROTOCOL, "the ring has only 0 bytes");
	client_close(&c);

	/* a frame larger than any */
	c = client_start(-1);
	free(expect(&c, MSG_HELLO, sizeof(EngineHello)));
	{
		FrameHeader header = {MSG_LOAD, MAX_FRAME_BYTES + 1};

		CHECK(send(c.fd, &header, sizeof(header), MSG_NOSIGNAL) == sizeof(header), "header");
	}
	check_error(&c, STATUS_PROTOCOL, "too large");
	client_close(&c);
	rows_free(&rows);
}

/* The engine is gone within a second of its socket's closing, in the middle of a step of several seconds, too. */
static void
check_cancel(const char *layers, size_t nrows, int32_t batch_size, bool wait_for_epoch, bool half_close)
{
	Rows		rows = rows_two_classes(nrows, WIDTH);
	Client		c = client_start(-1);
	Frame		f = end_rows_frame();
	struct timespec start,
				end;
	int			status;

	REQUIRE(load(&c, &rows, 0.1));
	CHECK(send_frame(&c, &f), "END_ROWS");
	free(expect(&c, MSG_LOADED, sizeof(DatasetStats) + 2 * WIDTH * sizeof(double)));
	f = train_frame(layers, 1000000000);
	((TrainSpec *) f.data)->batch_size = batch_size;
	CHECK(send_frame(&c, &f), "TRAIN");
	if (wait_for_epoch)
		free(expect(&c, MSG_EPOCH, sizeof(EpochReport)));
	else
		usleep(300000);
	clock_gettime(CLOCK_MONOTONIC, &start);
	if (half_close)
		shutdown(c.fd, SHUT_WR);
	else
	{
		close(c.fd);
		c.fd = -1;
	}
	status = client_wait(&c, 5000);
	clock_gettime(CLOCK_MONOTONIC, &end);
	CHECK(status != -1 && WIFEXITED(status), "wait status %d", status);
	CHECK((end.tv_sec - start.tv_sec) + 1e-9 * (end.tv_nsec - start.tv_nsec) < 1, "it took longer than a second");
	client_close(&c);
	rows_free(&rows);
}

TEST(a_closed_socket_ends_the_engine)
{
	check_cancel("linear:8 relu linear:2", 1000, 100, true, false);
	check_cancel("linear:8 relu linear:2", 1000, 100, true, true);
	/* one step over 4,000 rows of 4 million weights */
	check_cancel("linear:2000 relu linear:2000 relu linear:2", 4000, 4000, false, false);
}

/* One value of /proc/pid/FILE after a key. */
static unsigned long long
proc_value(pid_t pid, const char *file, const char *key, int base)
{
	char		path[64],
				line[256];
	FILE	   *f;
	unsigned long long value = ~0ULL;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, file);
	f = fopen(path, "r");
	if (f == NULL)
		return value;
	while (fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			value = strtoull(line + strlen(key), NULL, base);
	fclose(f);
	return value;
}

/* Nothing of the backend's state leaks into the engine: descriptors, signals; and it offers itself to the OOM killer. */
TEST(the_engine_settles_by_itself)
{
	int			leak[2];
	sigset_t	block,
				before;
	struct pollfd p;
	char		byte;
	Client		c;

	REQUIRE(pipe2(leak, O_CLOEXEC) == 0);
	sigemptyset(&block);
	sigaddset(&block, SIGTERM);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, &before);
	signal(SIGHUP, SIG_IGN);
	c = client_start(leak[1]);
	sigprocmask(SIG_SETMASK, &before, NULL);
	signal(SIGHUP, SIG_DFL);
	close(leak[1]);
	free(expect(&c, MSG_HELLO, sizeof(EngineHello)));
	p = (struct pollfd)
	{
		.fd = leak[0],.events = POLLIN
	};
	CHECK(poll(&p, 1, 2000) == 1 && read(leak[0], &byte, 1) == 0, "the engine keeps a descriptor that it was not given");
	CHECK(proc_value(c.pid, "status", "SigBlk:", 16) == 0, "blocked signals %llx", proc_value(c.pid, "status", "SigBlk:", 16));
	CHECK((proc_value(c.pid, "status", "SigIgn:", 16) & (1 << (SIGHUP - 1))) == 0, "SIGHUP is ignored");
	CHECK(proc_value(c.pid, "oom_score_adj", "", 10) == 1000, "oom_score_adj %llu", proc_value(c.pid, "oom_score_adj", "", 10));
	close(leak[0]);
	client_close(&c);
}

static uint64_t fuzz_counter;

static uint32_t
fuzz(uint32_t below)
{
	return (uint32_t) ((test_random(99, fuzz_counter++) + 1) / 2 * below) % below;
}

/* Values that programs trip over. */
static int32_t
nasty(void)
{
	static const int32_t values[] = {0, 1, -1, 2, 3, 7, 255, 256, 65535, 65536, 2147483647, -2147483647 - 1, 1 << 30, 513, 0x7fc00000};

	return values[fuzz(sizeof(values) / sizeof(values[0]))];
}

static void
spoil(Frame *frames, int *n)
{
	int			i = (int) fuzz(*n);
	Frame	   *f = &frames[i];

	switch (fuzz(8))
	{
		case 0:					/* another type */
			f->type = fuzz(16);
			break;
		case 1:					/* cut short */
			f->bytes = fuzz((uint32_t) f->bytes + 1);
			break;
		case 2:					/* too long */
			f->bytes += 1 + fuzz(64);
			break;
		case 3:					/* left out */
			memmove(f, f + 1, (*n - i - 1) * sizeof(Frame));
			(*n)--;
			break;
		case 4:					/* once more */
			memmove(f + 1, f, (*n - i) * sizeof(Frame));
			(*n)++;
			break;
		default:				/* a word of it changed */
			if (f->bytes >= 4)
			{
				int32_t		value = fuzz(3) > 0 ? nasty() : (int32_t) fuzz(0x7fffffff);

				memcpy(f->data + fuzz((uint32_t) f->bytes / 4) * 4, &value, 4);
			}
			break;
	}
}

/* Run a session of these frames; says of which signal the engine died, 0: none. */
static int
fuzz_session(const Frame *frames, int n, const Rows *rows)
{
	Client		c = client_start(-1);
	MessageType type;
	void	   *data;
	size_t		bytes;
	int			i,
				status;

	client_ring(&c, RECORD_BYTES);
	fill_slot(&c, 0, rows, 0, rows->rows);
	if (fuzz(8) == 0)
		((int32_t *) c.ring)[fuzz(4)] = nasty();
	for (i = 0; i < n && send_frame(&c, &frames[i]); i++)
		;
	/* a run that got through, or trains for ever, is ended by closing the socket */
	while (client_receive(&c, &type, &data, &bytes, 150))
	{
		free(data);
		if (type == MSG_ERROR || type == MSG_RESULT || type == MSG_EPOCH)
			break;
	}
	close(c.fd);
	c.fd = -1;
	status = client_wait(&c, 5000);
	client_close(&c);
	return status == -1 ? -1 : WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) > 1 ? 1000 + WEXITSTATUS(status) : 0;
}

#if defined(__SANITIZE_ADDRESS__)
#define FUZZ_SESSIONS 100		/* sanitized programs start slowly */
#else
#define FUZZ_SESSIONS 300
#endif

/* FUZZ_SESSIONS in the environment asks for more. */
TEST(spoiled_runs_never_crash_the_engine)
{
	Rows		rows = rows_two_classes(60, WIDTH);
	const char *wanted = getenv("FUZZ_SESSIONS");
	int			sessions = wanted != NULL ? atoi(wanted) : FUZZ_SESSIONS,
				session;

	setenv("PGT_THREADS", "1", 1);
	for (session = 0; session < sessions; session++)
	{
		static Frame frames[16];
		int			n = 4,
					spoils = 1 + (int) fuzz(3),
					died;
		uint64_t	counter = fuzz_counter;

		frames[0] = load_frame(0.1);
		frames[1] = rows_frame(0, 60);
		frames[2] = end_rows_frame();
		frames[3] = train_frame("linear:8 relu [ linear:8 batchnorm dropout:0.5 ] linear:2", 3);
		while (spoils-- > 0 && n > 0)
			spoil(frames, &n);
		died = fuzz_session(frames, n, &rows);
		CHECK(died == 0, "session %d (numbers from %llu): the engine died: %d", session, (unsigned long long) counter, died);
	}
	unsetenv("PGT_THREADS");
	rows_free(&rows);
}

/* Started by hand, without a socket. */
TEST(without_a_socket_the_engine_says_so)
{
	char		path[4096],
				command[8192],
				output[512] = "";
	ssize_t		n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	FILE	   *pipe;
	int			status;

	REQUIRE(n > 0);
	path[n] = '\0';
	strcpy(strrchr(path, '/') + 1, "pg_train_engine");
	snprintf(command, sizeof(command), "'%s' 3</dev/null 2>&1", path);
	pipe = popen(command, "r");
	REQUIRE(pipe != NULL);
	CHECK(fread(output, 1, sizeof(output) - 1, pipe) > 0, "no output");
	status = pclose(pipe);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 2, "wait status %d", status);
	CHECK(strstr(output, "descriptor 3 is not a socket") != NULL, "%s", output);

	snprintf(command, sizeof(command), "'%s' --version", path);
	pipe = popen(command, "r");
	REQUIRE(pipe != NULL);
	memset(output, 0, sizeof(output));
	CHECK(fread(output, 1, sizeof(output) - 1, pipe) > 0, "no output");
	status = pclose(pipe);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %d", status);
	CHECK(strstr(output, "pg_train_engine ") == output && strstr(output, "device cpu") != NULL, "%s", output);
}
