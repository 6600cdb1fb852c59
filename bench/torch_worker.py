"""One PyTorch process of the benchmark: a model, a precision and settings, told by stdin what to run.

usage: torch_worker.py MODEL PRECISION [SETTING ...]

MODEL is cnn, mlp or tabular; PRECISION fp32 or bf16; settings are channels_last, compile, fused.  The number of
threads comes from OMP_NUM_THREADS.  Commands, each answered by one line of JSON:

    train ROWS      train on this many rows that are in memory already; their time only
    sql             COPY BINARY from the server, numpy, tensors, one epoch; the whole time
    score           COPY BINARY, forward pass, COPY BINARY of (id, value) into a new table; the whole time

The connection comes from the PG* environment variables.  What is trained is what bench.py trains with pg_train.
"""
import contextlib
import io
import json
import resource
import struct
import sys
import time

import numpy as np
import psycopg2
import torch
import torch.nn as nn
import torch.nn.functional as F

MODEL, PRECISION = sys.argv[1:3]
SETTINGS = set(sys.argv[3:])
BATCH = 1024 if MODEL == 'tabular' else 256
SCORING_BATCH = 8192
FEATURES = 30


def make_net():
    if MODEL == 'cnn':
        net = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))
    elif MODEL == 'mlp':
        net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    else:
        net = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    if 'channels_last' in SETTINGS:
        net = net.to(memory_format=torch.channels_last)
    return net


class Pieces(io.RawIOBase):
    """Takes what COPY sends, joined once at the end."""

    def __init__(self):
        self.pieces = []

    def write(self, data):
        self.pieces.append(bytes(data))
        return len(data)


def copy_out(query):
    pieces = Pieces()
    with psycopg2.connect('') as connection, connection.cursor() as cursor:
        cursor.copy_expert(f'COPY ({query}) TO STDOUT (FORMAT binary)', pieces, size=1 << 20)
    return b''.join(pieces.pieces)


# COPY's binary format: a header of 19 bytes, rows of a 2-byte column count and columns after 4-byte lengths, 2 bytes
# of trailer.  Without NULLs every row here has the same size, so the whole is one array.

def load_images(limit):
    raw = copy_out('SELECT label, pixels FROM fashion_train' + (f' LIMIT {limit}' if limit else ''))
    row = 2 + 8 + 4 + 784
    count = (len(raw) - 21) // row
    rows = np.frombuffer(raw, np.uint8, offset=19, count=count * row).reshape(count, row)
    x = torch.from_numpy(np.ascontiguousarray(rows[:, 14:])).float().div_(255)
    y = torch.from_numpy(rows[:, 6:10].copy().view('>i4').ravel().astype(np.int64))
    if MODEL == 'cnn':
        x = x.reshape(-1, 1, 28, 28)
        if 'channels_last' in SETTINGS:
            x = x.contiguous(memory_format=torch.channels_last)
    return x, y


def load_columns(columns, limit):
    """id (int) first, then real columns."""
    raw = copy_out(f"SELECT id, {', '.join(columns)} FROM tabular" + (f' LIMIT {limit}' if limit else ''))
    width = len(columns) + 1
    row = 2 + 8 * width
    count = (len(raw) - 21) // row
    rows = np.frombuffer(raw, np.uint8, offset=19, count=count * row).reshape(count, row)
    fields = np.ascontiguousarray(rows[:, 2:]).view('>i4').reshape(count, 2 * width)
    ids = fields[:, 1].astype(np.int32)
    values = fields[:, 3::2].astype('<i4').view('<f4')
    return ids, values


NAMES = [f'f{i}' for i in range(1, FEATURES + 1)]


def load_tabular(limit):
    _, values = load_columns(NAMES + ['y'], limit)
    x = torch.from_numpy(np.ascontiguousarray(values[:, :FEATURES]))
    y = torch.from_numpy(values[:, FEATURES].copy())
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


def load(limit=None):
    return load_tabular(limit) if MODEL == 'tabular' else load_images(limit)


def autocast():
    return torch.autocast('cpu', dtype=torch.bfloat16) if PRECISION == 'bf16' else contextlib.nullcontext()


class Trainer:
    def __init__(self):
        self.net = make_net()
        self.call = torch.compile(self.net) if 'compile' in SETTINGS else self.net
        options = {'fused': True} if 'fused' in SETTINGS else {}
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3, **options)

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        with autocast():
            out = self.call(x)
            if MODEL == 'tabular':
                loss = F.mse_loss(out.squeeze(1).float(), y)
            else:
                loss = F.cross_entropy(out.float(), y)
        loss.backward()
        self.optimizer.step()

    def run(self, x, y, rows):
        """Whole batches from fresh permutations, at least rows in all."""
        done = 0
        while done < rows:
            order = torch.randperm(len(x))
            for start in range(0, len(x) - BATCH + 1, BATCH):
                index = order[start:start + BATCH]
                self.step(x[index], y[index])
                done += BATCH
                if done >= rows:
                    break
        return done

    def epoch(self, x, y):
        order = torch.randperm(len(x))
        for start in range(0, len(x), BATCH):
            index = order[start:start + BATCH]
            self.step(x[index], y[index])
        return len(x)


def score(net):
    ids, x = load_columns(NAMES, None)
    x = torch.from_numpy(np.ascontiguousarray(x))
    with torch.inference_mode(), autocast():
        values = torch.cat([net(x[i:i + SCORING_BATCH]).squeeze(1).float() for i in range(0, len(x), SCORING_BATCH)])
    rows = np.zeros(len(ids), np.dtype([('columns', '>i2'), ('id_length', '>i4'), ('id', '>i4'),
                                        ('value_length', '>i4'), ('value', '>f8')]))
    rows['columns'] = 2
    rows['id_length'] = 4
    rows['id'] = ids
    rows['value_length'] = 8
    rows['value'] = values.numpy()
    with psycopg2.connect('') as connection, connection.cursor() as cursor:
        cursor.execute('DROP TABLE IF EXISTS scores_torch; CREATE TABLE scores_torch (id int, value float8)')
        cursor.copy_expert('COPY scores_torch FROM STDIN (FORMAT binary)', io.BytesIO(
            b'PGCOPY\n\xff\r\n\0' + struct.pack('>ii', 0, 0) + rows.tobytes() + b'\xff\xff'), size=1 << 20)
    return len(ids)


def main():
    torch.manual_seed(0)
    data = None
    trainer = Trainer()
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == 'train':
            if data is None:
                data = load()
                trainer.run(*data, 4 * BATCH)
            started = time.perf_counter()
            rows = trainer.run(*data, int(arguments[0]))
        elif command == 'sql':
            started = time.perf_counter()
            # A new model each time, as a script that trains one would make; compiled code is kept.
            if 'compile' not in SETTINGS:
                trainer = Trainer()
            rows = trainer.epoch(*load())
        elif command == 'score':
            started = time.perf_counter()
            rows = score(trainer.net.eval())
        else:
            break
        seconds = time.perf_counter() - started
        print(json.dumps({'seconds': seconds, 'rows': rows, 'torch': torch.__version__,
                          'peak_bytes': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)


main()
