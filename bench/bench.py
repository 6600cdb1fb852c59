"""pg_train beside PyTorch: bench.sh prepares a server with the data and starts this.

Every line of the table alternates between the two, round by round, on the same rows; the ratio is the median of the
rounds' own ratios, so that what slows the whole machine for a while touches both.  PyTorch runs in a process of its
own (torch_worker.py), which has its settings, warmed up; its best settings are looked for first and kept.
"""
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import psycopg2

ROUNDS = int(os.environ['BENCH_ROUNDS'])
ROWS = int(os.environ['BENCH_ROWS'])
QUICK = os.environ['BENCH_QUICK'] == '1'
PROBE = os.environ['BENCH_PROBE'] == '1'
ONLY = os.environ['BENCH_ONLY'].split()
PYTHONS = os.environ['BENCH_PYTHONS'].split()
CACHE = os.environ['BENCH_CACHE']
LOG = os.path.join(os.path.dirname(CACHE), 'torch.log')
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'torch_worker.py')
PROCESSORS = len(os.sched_getaffinity(0))

CNN = '''[{"conv2d": {"out": 32, "kernel": 3, "padding": 1}}, "relu", {"maxpool2d": 2},
          {"conv2d": {"out": 64, "kernel": 3, "padding": 1}}, "relu", {"maxpool2d": 2},
          "flatten", {"linear": 256}, "relu", {"dropout": 0.5}]'''
MLP = '[{"linear": 256}, "relu", {"linear": 128}, "relu"]'
TABULAR = '[{"linear": 64}, "relu", {"linear": 64}, "relu"]'

# glibc gives large blocks back and refaults them in every step otherwise: worth up to 2x to PyTorch.
MALLOC = {'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': '8589934592', 'MALLOC_TOP_PAD_': '268435456'}


def say(text):
    print(text, file=sys.stderr, flush=True)


class TorchFailed(Exception):
    def __str__(self):
        return f'PyTorch failed; {LOG} tells why'


class Torch:
    """A torch_worker.py process."""

    def __init__(self, model, precision, config):
        threads = str(config['threads'])
        env = {name: value for name, value in os.environ.items() if not name.startswith(('OPENBLAS_', 'OMP_', 'MKL_'))}
        env.update(MALLOC, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, **config['env'])
        with open(LOG, 'a') as log:
            self.process = subprocess.Popen([config['python'], WORKER, model, precision, *config['settings']], env=env,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)

    def ask(self, command):
        self.process.stdin.write(command + '\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise TorchFailed
        return json.loads(line)

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait()


@functools.lru_cache
def torch_version(python):
    return subprocess.run([python, '-c', 'import torch; print(torch.__version__)'], stdout=subprocess.PIPE,
                          text=True, check=True).stdout.strip()


def start_configs(python, model):
    """Settings to begin with, and what may be changed about them, one after the other."""
    version = tuple(int(part) for part in torch_version(python).split('.')[:2])
    modern = version >= (2, 4)
    start = {'python': python, 'threads': PROCESSORS, 'env': {},
             'settings': (['channels_last'] if model == 'cnn' else []) + (['fused'] if modern else [])}
    changes = [{'threads': 1}] if PROCESSORS > 1 else []
    if model == 'cnn':
        changes.append({'drop': 'channels_last'})
    if modern:
        changes += [{'drop': 'fused'}, {'add': 'compile'}]
    else:
        # OpenBLAS takes some processors for much older ones.
        with open('/proc/cpuinfo') as file:
            flags = file.read()
        changes.append({'env': {'OPENBLAS_CORETYPE': 'SkylakeX' if 'avx512f' in flags else 'Haswell'}})
        changes.append({'env': {name: value for name, value in os.environ.items() if name.startswith('OPENBLAS_')}})
    return start, changes


def changed(config, change):
    config = dict(config, settings=list(config['settings']))
    if 'threads' in change:
        config['threads'] = change['threads']
    if 'drop' in change:
        config['settings'].remove(change['drop'])
    if 'add' in change:
        config['settings'].append(change['add'])
    if 'env' in change:
        config['env'] = change['env']
    return config


def speed(model, precision, config, rows):
    """Best of three, in rows/s; 0 where PyTorch cannot do it."""
    worker = Torch(model, precision, config)
    try:
        answers = [worker.ask(f'train {rows}') for _ in range(3)]
        return max(answer['rows'] / answer['seconds'] for answer in answers)
    except TorchFailed:
        return 0
    finally:
        worker.close()


def describe(config):
    words = [f"{config['threads']} thread{'s' if config['threads'] > 1 else ''}", *config['settings'],
             *(f'{name}={value}' for name, value in config['env'].items())]
    return ', '.join(words)


def best_config(model, precision, rows):
    """The fastest settings known for training, of all interpreters; looked for at most once."""
    versions = {python: torch_version(python) for python in PYTHONS}
    key = f"{model} {precision} {PROCESSORS} {' '.join(f'{p}={v}' for p, v in sorted(versions.items()))}"
    try:
        with open(CACHE) as file:
            cache = json.load(file)
    except FileNotFoundError:
        cache = {}
    if key in cache and not PROBE:
        return cache[key]
    best, best_speed = None, 0
    for python in PYTHONS:
        config, changes = start_configs(python, model)
        fastest = speed(model, precision, config, rows)
        say(f'  PyTorch {versions[python]}, {model} {precision}, {describe(config)}: {fastest:,.0f} rows/s')
        for change in [] if QUICK else changes:
            other = changed(config, change)
            found = speed(model, precision, other, rows)
            say(f'  PyTorch {versions[python]}, {model} {precision}, {describe(other)}: {found:,.0f} rows/s')
            if found > fastest:
                config, fastest = other, found
        if fastest > best_speed:
            best, best_speed = config, fastest
    if best is None:
        sys.exit(f'bench: PyTorch does not run {model} {precision} here')
    if not QUICK:
        cache[key] = best
        with open(CACHE, 'w') as file:
            json.dump(cache, file, indent=1)
    return best


class EnginePeak(threading.Thread):
    """Watches the engines of this machine: the largest resident memory that one reached."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak = 0
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(0.05):
            for pid in filter(str.isdigit, os.listdir('/proc')):
                try:
                    with open(f'/proc/{pid}/comm') as file:
                        if file.read().strip() != 'pg_train_engine':
                            continue
                    with open(f'/proc/{pid}/status') as file:
                        for line in file:
                            if line.startswith('VmHWM:'):
                                self.peak = max(self.peak, int(line.split()[1]) * 1024)
                except (FileNotFoundError, ProcessLookupError):
                    continue


class Server:
    def __init__(self):
        self.connection = psycopg2.connect('')
        self.connection.autocommit = True

    def query(self, sql, *arguments):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, arguments)
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row)) for row in cursor.fetchall()]

    def train(self, source, model, precision, epochs, architecture):
        if model == 'tabular':
            target, features = 'y', [f'f{i}' for i in range(1, 31)]
            options = "task => 'regression', batch_size => 1024"
        else:
            target, features = 'label', ['pixels']
            options = 'batch_size => 256' + (", input_shape => '{1,28,28}'" if model == 'cnn' else '')
        amp = 'bf16' if precision == 'bf16' else 'off'
        return self.query(f'''SELECT * FROM train_model('bench', %s, %s, features => %s, architecture => %s, epochs => %s,
                              validation_fraction => 0, amp => %s, {options})''',
                          source, target, features, architecture, epochs, amp)[0]


class Line:
    """One line of the table."""

    def __init__(self, name, title, model, precision, architecture):
        self.name, self.title, self.model, self.precision, self.architecture = name, title, model, precision, architecture

    unit = 'rows/s'

    def better(self, torch, ours):
        return ours / torch


class Training(Line):
    """Training alone: rows already in memory, nothing compiled or planned inside the measured time."""

    def __init__(self, *arguments, rows, epochs):
        super().__init__(*arguments)
        self.rows, self.epochs = rows, epochs

    def torch(self, worker):
        answer = worker.ask(f'train {self.rows}')
        return answer['rows'] / answer['seconds'], answer

    def ours(self, server):
        table = 'tabular' if self.model == 'tabular' else 'fashion_train'
        result = server.train(f'SELECT * FROM {table} LIMIT {self.rows}', self.model, self.precision, self.epochs,
                              self.architecture)
        return result['rows_per_second'], result


class SqlToModel(Line):
    """From the table to a trained model, one epoch."""
    unit = 's'

    def better(self, torch, ours):
        return torch / ours

    def torch(self, worker):
        answer = worker.ask('sql')
        return answer['seconds'], answer

    def ours(self, server):
        table = 'tabular' if self.model == 'tabular' else 'fashion_train'
        started = time.perf_counter()
        result = server.train(table, self.model, self.precision, 1, self.architecture)
        return time.perf_counter() - started, result


class Scoring(SqlToModel):
    """Score every row of the table and store the result in another."""

    def torch(self, worker):
        answer = worker.ask('score')
        return answer['seconds'], answer

    def ours(self, server):
        if not server.query("SELECT FROM pgtrain.models WHERE name = 'bench_scoring'"):
            server.train('SELECT * FROM tabular LIMIT 10000', 'tabular', 'fp32', 1, self.architecture)
            server.query("SELECT rename_model('bench', 'bench_scoring')")
        server.query('DROP TABLE IF EXISTS scores')
        started = time.perf_counter()
        server.query("CREATE TABLE scores AS SELECT id, predict('bench_scoring', t) AS value FROM tabular t")
        return time.perf_counter() - started, None


def lines():
    share = 8 if QUICK else 1
    images = 60000
    return [
        Training('cnn_fp32', 'CNN fp32', 'cnn', 'fp32', CNN, rows=15360 // share, epochs=2),
        Training('cnn_bf16', 'CNN bf16', 'cnn', 'bf16', CNN, rows=15360 // share, epochs=2),
        Training('mlp_fp32', 'MLP 784-256-128-10 fp32', 'mlp', 'fp32', MLP, rows=images // share, epochs=3),
        Training('mlp_bf16', 'MLP 784-256-128-10 bf16', 'mlp', 'bf16', MLP, rows=images // share, epochs=3),
        Training('tabular_fp32', 'tabular 30-64-64-1 fp32', 'tabular', 'fp32', TABULAR, rows=ROWS, epochs=2),
        SqlToModel('sql_tabular', f'SQL to model, {ROWS:,} x 30', 'tabular', 'fp32', TABULAR),
        SqlToModel('sql_mlp', 'SQL to model, Fashion MLP fp32', 'mlp', 'fp32', MLP),
        SqlToModel('sql_cnn', 'SQL to model, Fashion CNN bf16', 'cnn', 'bf16', CNN),
        Scoring('scoring', f'scoring {ROWS:,} rows into a table', 'tabular', 'fp32', TABULAR),
    ]


def figure(value, unit):
    return f'{value:,.0f}' if unit == 'rows/s' else f'{value:,.2f}'


def megabytes(value):
    return f'{value / 1e6:,.0f}' if value else '-'


def measure(line, server, config):
    worker = Torch(line.model, line.precision, config)
    try:
        # A round that does not count: caches warm, PyTorch has seen every shape; peak memory is taken here.
        line.torch(worker)
        peak = EnginePeak()
        peak.start()
        line.ours(server)
        peak.done.set()
        peak.join()
        torch, ours, answer = [], [], None
        for number in range(ROUNDS):
            for side in (('torch', 'ours') if number % 2 == 0 else ('ours', 'torch')):
                if side == 'torch':
                    value, answer = line.torch(worker)
                    torch.append(value)
                else:
                    ours.append(line.ours(server)[0])
        return torch, ours, answer['peak_bytes'], peak.peak
    finally:
        worker.close()


def main():
    server = Server()
    chosen = [line for line in lines() if not ONLY or any(word in line.name for word in ONLY)]
    table = []
    device = None
    for line in chosen:
        rows = {'cnn': 5120, 'mlp': 30720, 'tabular': 204800}[line.model]
        config = best_config(line.model, line.precision, rows)
        say(f'{line.title}: {ROUNDS} rounds, PyTorch with {describe(config)}')
        torch, ours, torch_peak, our_peak = measure(line, server, config)
        ratios = [line.better(t, o) for t, o in zip(torch, ours)]
        table.append((line.title, line.unit, figure(statistics.median(torch), line.unit),
                      figure(statistics.median(ours), line.unit), f'{statistics.median(ratios):.2f}x',
                      f'{min(ratios):.2f}-{max(ratios):.2f}', megabytes(torch_peak), megabytes(our_peak),
                      f"{torch_version(config['python'])}: {describe(config)}"))
    device = server.query('SELECT device, libraries FROM pgtrain.versions ORDER BY created DESC LIMIT 1')
    version = server.query('SHOW server_version')[0]['server_version']
    extension = server.query("SELECT extversion FROM pg_extension WHERE extname = 'pg_train'")[0]['extversion']
    print(f'\npg_train {extension} in PostgreSQL {version}'
          + (f", {device[0]['device']}, {device[0]['libraries']}" if device else ''))
    print(f'Medians of {ROUNDS} alternating rounds; ratio: how many times faster pg_train is, median and range over the '
          'rounds; MB: peak of the\nPyTorch process and of the engine.\n')
    header = ('', 'unit', 'PyTorch', 'pg_train', 'ratio', 'range', 'MB', 'MB', 'PyTorch and its settings')
    widths = [max(len(row[i]) for row in [header, *table]) for i in range(len(header))]
    for row in [header, *table]:
        print('  '.join(cell.ljust(width) if i in (0, 1, 8) else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())


main()
