/*
 * protocol.c - frames over a blocking socket.
 */
#include "engine/protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

Status
frame_send(int fd, MessageType type, const void *data, size_t bytes, Error *err)
{
	FrameHeader header = {type, (uint32_t) bytes};
	struct iovec iov[2] = {{&header, sizeof(header)}, {(void *) data, bytes}};
	struct msghdr message = {.msg_iov = iov,.msg_iovlen = bytes > 0 ? 2 : 1};

	if (bytes > MAX_FRAME_BYTES)
		return error_set(err, STATUS_INTERNAL, "a frame of %zu bytes is too large", bytes);
	while (message.msg_iovlen > 0)
	{
		ssize_t		sent = sendmsg(fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			return error_set(err, STATUS_IO, "could not send to the control socket: %s", strerror(errno));
		while (message.msg_iovlen > 0 && (size_t) sent >= message.msg_iov->iov_len)
		{
			sent -= message.msg_iov->iov_len;
			message.msg_iov++;
			message.msg_iovlen--;
		}
		if (message.msg_iovlen > 0)
		{
			message.msg_iov->iov_base = (char *) message.msg_iov->iov_base + sent;
			message.msg_iov->iov_len -= sent;
		}
	}
	return STATUS_OK;
}

static Status
receive_all(int fd, void *data, size_t bytes, Error *err)
{
	char	   *to = data;

	while (bytes > 0)
	{
		ssize_t		got = recv(fd, to, bytes, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_set(err, STATUS_IO, "could not receive from the control socket: %s", strerror(errno));
		if (got == 0)
			return error_set(err, STATUS_IO, "the other end of the control socket has closed");
		to += got;
		bytes -= got;
	}
	return STATUS_OK;
}

Status
frame_receive(int fd, MessageType *type, void **data, size_t *bytes, Error *err)
{
	FrameHeader header;
	Status		status;

	*data = NULL;
	*bytes = 0;
	TRY(receive_all(fd, &header, sizeof(header), err));
	if (header.length > MAX_FRAME_BYTES)
		return error_set(err, STATUS_PROTOCOL, "a frame of %u bytes is too large", header.length);
	*type = header.type;
	if (header.length == 0)
		return STATUS_OK;
	*data = malloc(header.length);
	if (*data == NULL)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	status = receive_all(fd, *data, header.length, err);
	if (status != STATUS_OK)
	{
		free(*data);
		*data = NULL;
		return status;
	}
	*bytes = header.length;
	return STATUS_OK;
}
