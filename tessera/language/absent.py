"""Names that Tessera does not have, and their alternatives. docs/status.md has the whole list."""

from __future__ import annotations

_GRADIENTS = "ts.grad(f) makes the function that computes the gradient of f"
_RULES = "@f.vjp and @f.jvp write the derivative of a function f"
_MODULES = "ts.nn has modules and layers, which are passed to a @ts.function"
_OPTIMIZERS = "ts.train(model, ts.optimizers.AdamW(1e-3), loss, data) trains; a loop of ts.value_and_grad does too"
_DISTRIBUTIONS = "there are no probability distributions yet; ts.rand, ts.randn and ts.dropout draw numbers"
_SERVING = "there is no server of models yet: call the function where it runs"
_SAVED = "ts.compile(f, ...).save(folder) writes the compiled code and its levels"
_SAVED_STATE = "ts.checkpoint.save and ts.checkpoint.load keep training state"
_FOREIGN = "models of other formats are neither read nor written yet"

_OF_PACKAGE: dict[str, str] = {
    "backward": "loss.backward() of a tensor; ts.grad(f) makes the function that computes the gradient of f",
    **dict.fromkeys(
        ("custom_vjp", "custom_jvp", "custom_gradient"), "@f.vjp and @f.jvp write the derivative of a function f"
    ),
    **dict.fromkeys(
        ("enable_grad", "set_grad_enabled", "inference_mode"), "under ts.no_grad() nothing is recorded for backward()"
    ),
    **dict.fromkeys(("Module", "module", "layers", "models"), _MODULES),
    **dict.fromkeys(("optim", "optimizer", "loss_fn", "Trainer", "fit"), _OPTIMIZERS),
    **dict.fromkeys(("prob", "distributions", "Normal", "sample", "observe"), _DISTRIBUTIONS),
    **dict.fromkeys(("serving", "serve", "deploy"), _SERVING),
    **dict.fromkeys(("export", "to_onnx"), _SAVED),
    "load": _SAVED_STATE,
    **dict.fromkeys(("migrate", "from_torch", "from_jax", "from_onnx"), _FOREIGN),
    "pmap": "there is no pmap: @ts.distributed shares a function among devices",
    "no_jit": "everything is compiled; eager operators run without a function around them",
}
_OF_NN: dict[str, str] = {
    **dict.fromkeys(
        ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict"), "a field may be a list or dict of modules"
    ),
    "Parameter": "an array of floats that a field holds is a parameter",
    "functional": "functions are those of ts: ts.relu, ts.softmax, ts.cross_entropy",
    **dict.fromkeys(("ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax"), "call the function: ts.relu, ts.softmax"),
    "Identity": "write lambda x: x, or leave the layer out",
    "Flatten": "call ts.reshape(x, (x.shape[0], -1))",
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss"), "call the function ts.cross_entropy(logits, labels)"),
    **dict.fromkeys(("MSELoss", "L1Loss"), "call the function ts.mse(x, y), or ts.mean(ts.abs(x - y))"),
    "utils": "ts.clip_grad_norm(gradient, max_norm), or an optimizer's clip=",
    "Transformer": "there are TransformerBlock, EncoderLayer, DecoderLayer, and Stack to repeat them",
}
_INSIDE: dict[str, str] = {
    "rand": "it draws from another seed at each call; inside, give a seed: ts.uniform(seed, shape)",
    "randn": "it draws from another seed at each call; inside, give a seed: ts.normal(seed, shape)",
}
_OF_PROGRAM: dict[str, str] = {
    **dict.fromkeys(("export", "to_onnx", "save", "serialize"), _SAVED),
    **dict.fromkeys(("grad", "backward", "value_and_grad"), _GRADIENTS),
    **dict.fromkeys(("parameters", "state_dict", "train", "eval"), _MODULES),
    **dict.fromkeys(("lower", "as_text", "ptx", "asm"), "ts.compile(f, ...) has ir(level), source and assembly"),
}


def instead(name: str, package: str = "tessera") -> str:
    """The alternative to `<package>.<name>`; empty if there is none."""
    return {"tessera": _OF_PACKAGE, "tessera.nn": _OF_NN}.get(package, {}).get(name, "")


def instead_of_method(name: str) -> str:
    """The alternative to `f.<name>` for a function or kernel; empty if there is none."""
    return _OF_PROGRAM.get(name, "")


def instead_inside(name: str) -> str:
    """The alternative inside a function or kernel to `tessera.<name>`, which exists only outside."""
    return _INSIDE.get(name, "it is called outside of functions and kernels")
