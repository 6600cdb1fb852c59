#!/usr/bin/env python3
"""Make the golden values that regress/unit/engine/test_golden.c compares with: losses, gradients and parameters after
optimizer steps of small networks, computed by PyTorch.

    python3 regress/unit/golden.py            writes regress/unit/engine/golden_*.h

The files are committed, so that the tests need no PyTorch.  Everything is computed in float64 and written as float32, so
that the only rounding in a comparison is ours.
"""
import os

import torch
from torch import nn

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engine")
STEPS = 3


class Residual(nn.Sequential):
    """Numbered like nn.Sequential, its output is added to its input."""

    def forward(self, x):
        return x + super().forward(x)


# eps is large: the gradient of a bias before a batch norm is rounding only, which Adam would blow up
OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.85, 0.97), eps=1e-2, weight_decay=0.03),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.85, 0.97), eps=1e-2, weight_decay=0.2),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.03),
}

CASES = {
    "mlp": dict(
        layers="linear:7 relu linear:6 layernorm tanh [ linear:5 gelu linear!:6 ] batchnorm sigmoid linear:3",
        shape=(5,), rows=9, loss="LOSS_CROSS_ENTROPY", outputs=3,
        net=lambda: nn.Sequential(
            nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.LayerNorm(6), nn.Tanh(),
            Residual(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 6, bias=False)),
            nn.BatchNorm1d(6), nn.Sigmoid(), nn.Linear(6, 3))),
    "cnn": dict(
        layers="conv2d:3,3,1,1 batchnorm relu maxpool2d:2 [ conv2d:3,3,1,1 relu conv2d!:3,1 ] conv2d:4,2x3,1x2,1x0 layernorm "
               "gelu avgpool2d:2,1,1 flatten linear:6 relu [ linear:6 tanh ] linear:4",
        shape=(2, 8, 10), rows=5, loss="LOSS_CROSS_ENTROPY", outputs=4,
        net=lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2),
            Residual(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 3, 1, bias=False)),
            nn.Conv2d(3, 4, (2, 3), stride=(1, 2), padding=(1, 0)), nn.LayerNorm([4, 5, 2]), nn.GELU(),
            nn.AvgPool2d(2, 1, 1), nn.Flatten(), nn.Linear(72, 6), nn.ReLU(),
            Residual(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 4))),
    "regression": dict(
        layers="conv2d:4,3 flatten [ linear:16 relu ] batchnorm linear:1",
        shape=(2, 4, 4), rows=6, loss="LOSS_SMOOTH_L1", outputs=1,
        net=lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.Flatten(), Residual(nn.Linear(16, 16), nn.ReLU()), nn.BatchNorm1d(16),
            nn.Linear(16, 1))),
    "binary": dict(
        layers="linear:4 tanh linear:1", shape=(3,), rows=8, loss="LOSS_BCE_WITH_LOGITS", outputs=1,
        net=lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))),
}


def loss_of(case, logits, targets):
    if case["loss"] == "LOSS_CROSS_ENTROPY":
        return nn.functional.cross_entropy(logits, targets)
    if case["loss"] == "LOSS_BCE_WITH_LOGITS":
        return nn.functional.binary_cross_entropy_with_logits(logits[:, 0], targets.double())
    return nn.functional.smooth_l1_loss(logits[:, 0], targets)


def array(kind, name, values):
    lines, line = [], "\t"
    for v in values:
        word = (str(int(v)) if kind == "int32_t" else "%.9g" % v) + ", "
        if len(line) + len(word) > 110:
            lines.append(line.rstrip())
            line = "\t"
        line += word
    lines.append(line.rstrip())
    return "static const %s %s[] = {\n%s\n};\n" % (kind, name, "\n".join(lines))


def state(net):
    return [(k, v) for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")]


def flat(tensors):
    return torch.cat([t.detach().flatten().float() for t in tensors]).tolist()


def write(name, case):
    torch.manual_seed(20)
    net = case["net"]().double()
    with torch.no_grad():
        for key, value in state(net):
            # affine parameters and statistics that are not their neutral values
            value.copy_(value.float() + (0.3 * torch.rand_like(value)).float())
    x = (2 * torch.rand(case["rows"], *case["shape"]) - 0.8).double()
    if case["loss"] == "LOSS_SMOOTH_L1":
        targets = (3 * torch.rand(case["rows"]) - 1).double()
    else:
        targets = torch.randint(0, max(2, case["outputs"]), (case["rows"],))
    initial = {k: v.clone() for k, v in net.state_dict().items()}
    out = []
    out.append(array("float", name + "_x", flat([x])))
    out.append(array("int32_t" if not targets.is_floating_point() else "float", name + "_targets", targets.tolist()))
    out.append(array("float", name + "_initial", flat(v for _, v in state(net))))

    net.eval()
    out.append(array("float", name + "_eval_logits", flat([net(x)])))
    net.train()
    loss = loss_of(case, net(x), targets)
    loss.backward()
    gradients = dict(net.named_parameters())
    out.append(array("float", name + "_gradients",
                     flat(gradients[k].grad if k in gradients else torch.zeros_like(v) for k, v in state(net))))
    for optimizer, make in OPTIMIZERS.items():
        net.load_state_dict(initial)
        steps = make(net.parameters())
        for _ in range(STEPS):
            steps.zero_grad()
            loss_of(case, net(x), targets).backward()
            steps.step()
        out.append(array("float", "%s_after_%s" % (name, optimizer), flat(v for _, v in state(net))))

    names = ",\n".join('\t"%s"' % k for k, _ in state(net))
    shape = list(case["shape"]) + [0, 0]
    with open(os.path.join(HERE, "golden_%s.h" % name), "w") as f:
        f.write("/* Made by regress/unit/golden.py with PyTorch %s. */\n" % torch.__version__)
        f.write("\n".join(out))
        f.write("\nstatic const char *const %s_names[] = {\n%s\n};\n" % (name, names))
        f.write("\nstatic const Golden golden_%s = {\n" % name)
        f.write('\t.layers = "%s",\n' % case["layers"])
        f.write("\t.input = {%d, %d, %d},\n\t.rows = %d,\n\t.loss = %s,\n\t.outputs = %d,\n"
                % (shape[0], shape[1], shape[2], case["rows"], case["loss"], case["outputs"]))
        f.write("\t.names = %s_names,\n\t.tensors = %d,\n" % (name, len(state(net))))
        f.write("\t.train_loss = %.9g,\n" % loss.item())
        for field in ("x", "targets", "initial", "eval_logits", "gradients", "after_adam", "after_adamw", "after_sgd"):
            f.write("\t.%s = %s_%s,\n" % (field, name, field))
        f.write("};\n")


if __name__ == "__main__":
    for case_name, case in CASES.items():
        write(case_name, case)
