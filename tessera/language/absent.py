"""Names that Tessera does not have, and their alternatives. docs/status.md has the whole list."""

from __future__ import annotations

import opcode

from tessera.deferred import deferred
from tessera.errors import Diagnostic, UnknownImport, UnknownName

_GRADIENTS = "ts.grad(f) makes the function that computes the gradient of f"
_RULES = "@f.vjp and @f.jvp write the derivative of a function f"
_MODULES = "ts.nn has modules and layers, which are passed to a @ts.function"
_OPTIMIZERS = "ts.train(model, ts.optimizers.AdamW(1e-3), loss, data) trains; a loop of ts.value_and_grad does too"
_DISTRIBUTIONS = "there are no probability distributions yet; ts.rand, ts.randn and ts.dropout draw numbers"
_SERVING = "there is no server of models yet: call the function where it runs"
_SAVED = "ts.compile(f, ...).save(folder) writes the compiled code and its levels"
_SAVED_STATE = "ts.checkpoint.save and ts.checkpoint.load keep training state"
_WEIGHTS = 'model.load_state_dict(state, layout="torch") takes the weights of the same model in PyTorch'

_DTYPES = {
    "float": "f32", "double": "f64", "half": "f16", "long": "int64", "int": "int32", "short": "int16", "char": "int8",
    "byte": "uint8", "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip
"""PyTorch's names of dtypes, and ours"""
_BY_INDEX = "x + ts.segment_sum(rows, indices, len(x)) adds rows, ts.scatter_add(x, indices, updates, axis) elements"
_OF_PACKAGE: dict[str, str] = {
    **{name: f"the dtype is ts.{dtype}" for name, dtype in _DTYPES.items()},
    **dict.fromkeys(("FloatTensor", "LongTensor", "DoubleTensor"), "ts.tensor(data, ts.f32) has a dtype"),
    **dict.fromkeys(
        ("from_numpy", "as_tensor"), "ts.asarray(array) shares its memory; functions take NumPy's arrays too"
    ),
    "is_tensor": "write isinstance(x, ts.Tensor)",
    "Size": "a shape is a tuple of numbers",
    "nonzero": "the size of a result may not depend on values: ts.where(mask, x, y), or NumPy's outside of functions",
    "autograd": f"{_GRADIENTS}; {_RULES}",
    "utils": "PyTorch's DataLoader, and any other iterable of batches, gives data to ts.train",
    "backward": "loss.backward() of a tensor; ts.grad(f) makes the function that computes the gradient of f",
    "custom_gradient": _RULES,
    **dict.fromkeys(
        ("enable_grad", "set_grad_enabled", "inference_mode"), "under ts.no_grad() nothing is recorded for backward()"
    ),
    **dict.fromkeys(("Module", "module", "layers", "models"), _MODULES),
    **dict.fromkeys(("optimizer", "loss_fn", "Trainer", "fit"), _OPTIMIZERS),
    "optim": "it is ts.optimizers: ts.optimizers.AdamW(model.parameters(), lr=1e-3), or ts.optimizers.AdamW(1e-3) for"
    " ts.train and opt.update",
    **dict.fromkeys(
        ("autocast", "amp", "GradScaler"),
        "model.to_mixed_precision(compute=ts.bf16) is the model with narrow products; of f16 AdamW(...,"
        " loss_scale='dynamic') scales the loss",
    ),
    "gradcheck": "ts.check_grad(f, *args) compares derivatives with differences",
    "empty_like": "write ts.zeros_like(x)",
    **dict.fromkeys(("prob", "distributions", "Normal", "sample", "observe"), _DISTRIBUTIONS),
    **dict.fromkeys(("serving", "serve", "deploy"), _SERVING),
    **dict.fromkeys(("export", "to_onnx"), _SAVED),
    "load": _SAVED_STATE,
    "from_onnx": "models of other formats are neither read nor written yet",
    **dict.fromkeys(("migrate", "from_torch", "load_state_dict"), _WEIGHTS),
    "from_jax": "give the arrays to model.load_state_dict, under the names of model.state_dict()",
    "recover_and_continue": "leave out the try: @ts.fault_tolerant(max_restarts=3) starts again from the last state",
    "effects": "kernels load what they read ahead of its use by themselves: leave out the with; cache.prefetch_window"
    "(start, end) reads into the processor's caches, @ts.effect marks methods that change a state",
    "nll_loss": "ts.cross_entropy(logits, labels) takes the logits, without log_softmax",
    "binary_cross_entropy_with_logits": "ts.nn.binary_cross_entropy(logits, labels) takes the logits",
    **dict.fromkeys(("l1_loss", "L1Loss"), "ts.mean(ts.abs(x - y))"),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss"), "ts.nn.huber(x, y)"),
    "kl_div": "write ts.sum(ts.xlogy(p, p) - p * log_q)",
    **dict.fromkeys(("rand_like", "randn_like"), "ts.uniform(seed, x.shape) and ts.normal(seed, x.shape)"),
    **dict.fromkeys(
        ("tree", "tree_util", "tree_flatten", "tree_reduce", "flatten_util", "ravel_pytree"),
        "ts.tree_map(f, tree, ...) maps all arrays, ts.tree_leaves(tree) is the list of them, ts.tree_ravel one vector",
    ),
    **dict.fromkeys(("index_add", "scatter_reduce"), _BY_INDEX),
    "associative_scan": "ts.cumsum, cumprod, cummax and ts.scan go along an axis, ts.tile.associative_scan in kernels",
    "pmap": "there is no pmap: @ts.distributed shares a function among devices",
    **dict.fromkeys(("Scalar", "scalar"), "a parameter that is a number is annotated by its dtype: a: ts.f32"),
    **dict.fromkeys(("cuda", "mps", "xpu"), "ts.devices() lists the devices; model.to('cuda') and x.to('cuda') move"),
    **dict.fromkeys(
        ("debug", "debug_mode"),
        "ts.monitor_numerics() finds the line of a NaN; with TESSERA_DEBUG=1 kernels check indices and asserts",
    ),
    **dict.fromkeys(("randperm", "shuffle"), "write ts.permutation(key, n)"),
    "multinomial": "ts.categorical(key, logits) draws from softmax(logits)",
    "random": "ts.uniform(key, shape) and ts.normal(key, shape) draw by a key, outside ts.rand and ts.randn too; "
    "ts.split_key(key, n) makes keys of a key",
    **dict.fromkeys(
        ("PRNGKey", "Generator"), "a key is a whole number, such as 0; ts.split_key(key, n) makes n of one"
    ),
    "fold_in": "ts.split_key(key, n)[i]",
    **dict.fromkeys(
        ("lax", "fori_loop", "while_loop", "cond", "switch", "map"),
        "write if, while and for i in ts.range(n); ts.scan, ts.vmap, ts.where",
    ),
    **dict.fromkeys(
        ("unique", "masked_select"), "the size of a result may not depend on values; outside of functions, NumPy's"
    ),
    "repeat_interleave": "write ts.repeat(x, n, axis)",
    "expand_as": "write ts.broadcast_to(x, y.shape)",
    "view_as": "write x.reshape(y.shape)",
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), "write c + a @ b"),
    "array_equal": "write ts.all(x == y)",
    "nanpercentile": "ts.nanmedian, ts.nanmean and others leave out NaN; ts.quantile(x, q / 100) does not",
    **dict.fromkeys(("embedding_bag", "EmbeddingBag"), "write table[indices].sum(axis=1)"),
    "instance_norm": "ts.group_norm(x, channels) is the same",
    "unfold": "write ts.sliding_window_view(x, size, axis, step)",
    "pairwise_distance": "write ts.norm(x - y, axis=-1), of all pairs ts.cdist(x, y)",
    "ctc_loss": "call ts.nn.ctc_loss(log_probs, labels, steps, lengths)",
    "triplet_margin_loss": "call ts.nn.triplet_margin(anchor, positive, negative)",
    **dict.fromkeys(("logspace", "geomspace"), "write base ** ts.linspace(start, stop, num)"),
    "avg": "write ts.mean(x, axis)",
    "identity": "write ts.eye(n)",
    **{n: f"in kernels it is ts.tile.{n}" for n in ("program_id", "num_programs", "cdiv", "store")},
    "constexpr": "annotate a parameter with ts.Const, ts.Const['BLOCK'] where a dim has its name",
    **dict.fromkeys(
        ("func", "functional_call"), "a function takes the model: ts.grad(lambda model: loss(model, x))(model)"
    ),
    "movedim": "write ts.moveaxis(x, source, destination)",
    **dict.fromkeys(("addcmul", "addcdiv"), "write x + value * a * b"),
    "no_jit": "everything is compiled; eager operators run without a function around them",
}
_OF_NN: dict[str, str] = {
    **dict.fromkeys(
        ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict"), "a field may be a list or dict of modules"
    ),
    "Buffer": "write self.register_buffer(name, array), or name: ts.Tensor = nn.buffer() in the class",
    "functional": "functions are those of ts: ts.relu, ts.softmax, ts.cross_entropy",
    **{
        name: f"write the function ts.{function}, without parentheses in nn.Sequential"
        for name, function in {
            "ReLU": "relu",
            "GELU": "gelu",
            "SiLU": "silu",
            "Sigmoid": "sigmoid",
            "Tanh": "tanh",
            "Softplus": "softplus",
        }.items()
    },
    **{
        name: f"write the function: ts.{call}, in nn.Sequential lambda x: ts.{call}"
        for name, call in {
            "LeakyReLU": "leaky_relu(x, 0.01)",
            "Softmax": "softmax(x, -1)",
            "LogSoftmax": "log_softmax(x, -1)",
            "ELU": "elu(x)",
            "Flatten": "flatten(x, 1)",
            "PReLU": "where(x > 0, x, slope * x)",
        }.items()
    },
    **{
        f"AdaptiveAvgPool{n}d": f"call ts.adaptive_avg_pool{n}d(x, size), in nn.Sequential after lambda x:"
        for n in (1, 2, 3)
    },
    **dict.fromkeys(("CTCLoss", "ctc"), "call nn.ctc_loss(log_probs, labels, steps, lengths)"),
    **dict.fromkeys(("TripletMarginLoss", "triplet_margin_loss"), "call nn.triplet_margin(anchor, positive, negative)"),
    "PixelShuffle": "call ts.pixel_shuffle(x, factor), in nn.Sequential after lambda x:",
    "EmbeddingBag": "nn.Embedding, and the sum of its rows: table(indices).sum(axis=1)",
    "gumbel_softmax": "call ts.gumbel_softmax(key, logits)",
    "Identity": "write lambda x: x, or leave the layer out",
    **dict.fromkeys(("CrossEntropyLoss", "NLLLoss"), "call the function ts.cross_entropy(logits, labels)"),
    **dict.fromkeys(("MSELoss", "L1Loss"), "call the function ts.mse(x, y), or ts.mean(ts.abs(x - y))"),
    "utils": "ts.clip_grad_norm(gradient, max_norm), or an optimizer's clip=; ts.tree_ravel(model) is one vector",
    "MultiheadAttention": "it is MultiHeadAttention here",
    "TransformerEncoderLayer": "it is EncoderLayer(features, heads, key=)",
    "TransformerDecoderLayer": "it is DecoderLayer(features, heads, key=)",
    **dict.fromkeys(("TransformerEncoder", "TransformerDecoder"), "Stack(make, n, key=) repeats a layer"),
    **dict.fromkeys(("BCEWithLogitsLoss", "BCELoss"), "nn.binary_cross_entropy(logits, labels) takes the logits"),
    **dict.fromkeys(("HuberLoss", "SmoothL1Loss"), "call nn.huber(x, y)"),
    "KLDivLoss": "write ts.sum(ts.xlogy(p, p) - p * log_q)",
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), "y, state = nn.LSTM(...)(x[:, None], state) is one step of it"),
    **dict.fromkeys(("Dense", "Bilinear"), "there is Linear(inputs, outputs, key=)"),
    **dict.fromkeys(("Conv", "BatchNorm"), "there are Conv1d to Conv3d, BatchNorm1d to BatchNorm3d"),
    **dict.fromkeys(("InstanceNorm1d", "InstanceNorm2d"), "GroupNorm(channels, channels) is the same"),
    **dict.fromkeys(("Dropout1d", "Dropout2d"), "x * ts.dropout(ts.ones((*x.shape[:2], 1, 1)), key, p) drops channels"),
    **dict.fromkeys(("l1_loss", "L1Loss"), "ts.mean(ts.abs(x - y))"),
    "nll_loss": "ts.cross_entropy(logits, labels) takes the logits, without log_softmax",
    "smooth_l1_loss": "call nn.huber(x, y)",
    "binary_cross_entropy_with_logits": "nn.binary_cross_entropy(logits, labels) takes the logits",
    "kl_div": "write ts.sum(ts.xlogy(p, p) - p * log_q)",
    "interpolate": "call ts.interpolate(x, size)",
    "RNN": "there are LSTM and GRU; ts.scan and ts.range loop over time",
    "Upsample": "call ts.interpolate(x, size)",
    "Transformer": "there are TransformerBlock, EncoderLayer, DecoderLayer, and Stack to repeat them",
}
_OF_INIT: dict[str, str] = {
    **dict.fromkeys(("xavier_uniform", "xavier_uniform_"), "write init.glorot_uniform"),
    **dict.fromkeys(("kaiming_normal", "kaiming_normal_"), "write init.he_normal"),
    **dict.fromkeys(("kaiming_uniform", "kaiming_uniform_"), "init.lecun_uniform is what nn.Linear starts with"),
    **dict.fromkeys(("normal_", "uniform_", "zeros_", "ones_"), "without the underscore: arrays are made, not changed"),
    **dict.fromkeys(("xavier_normal", "trunc_normal", "orthogonal"), "write a function of shape, key and dtype"),
}
_OF_LINALG: dict[str, str] = {
    **dict.fromkeys(("eig", "eigvals", "expm"), "outside of functions NumPy and SciPy have it"),
    "cond": "divide: ts.linalg.matrix_norm(x, ord=2) / ts.linalg.matrix_norm(x, ord=-2)",
    **dict.fromkeys(("lu", "lu_factor", "lu_solve"), "ts.linalg.solve, inv and det factor a matrix once"),
    **dict.fromkeys(("cho_factor", "cholesky_ex", "cho_solve"), "write ts.linalg.cholesky and solve_triangular"),
    "inverse": "write ts.linalg.inv",
    "multi_dot": "write a @ b @ c",
}
_BLOCKS = "a tensor is subscripted, there are no pointers: x[i : i + 32, j : j + 32] is a block"
_OF_TILE: dict[str, str] = {
    **dict.fromkeys(
        ("make_block_ptr", "advance", "make_tensor_descriptor", "load_tensor_descriptor", "pointer_type"), _BLOCKS
    ),
    **dict.fromkeys(
        (
            "atomic_add",
            "atomic_max",
            "atomic_min",
            "atomic_cas",
            "atomic_xchg",
            "atomic_and",
            "atomic_or",
            "atomic_xor",
        ),
        "programs add up what they have with ts.tile.reduce_across, in one order",
    ),
    **dict.fromkeys(
        ("debug_barrier", "syncthreads", "syncwarp", "__syncthreads"), "barriers are inserted; ts.tile.barrier()"
    ),
    **dict.fromkeys(("multiple_of", "max_contiguous", "max_constancy", "assume"), "write assert N % 16 == 0"),
    **dict.fromkeys(("broadcast_to", "broadcast"), "tiles broadcast by themselves; x[:, None] adds an axis"),
    **dict.fromkeys(("rand", "randn", "randint"), "ts.tile.uniform and ts.tile.random_bits draw by a seed"),
    **dict.fromkeys(("shared", "shared_memory"), "write ts.tile.alloc_shared"),
    **dict.fromkeys(
        ("swizzle2d", "num_warps", "num_stages", "num_ctas"), "@ts.kernel(num_warps=4, num_stages=2) sets it"
    ),
    **dict.fromkeys(("ravel", "flatten"), "write ts.tile.reshape(x, (-1,))"),
    **dict.fromkeys(
        ("threadIdx", "blockIdx", "thread_id", "lane_id"),
        "ts.tile.program_id(axis) numbers programs, ts.tile.arange lanes",
    ),
    "device_print": "write ts.tile.print",
    "clamp": "write ts.tile.minimum(ts.tile.maximum(x, low), high)",
    "interleave": "write ts.tile.stack and ts.tile.reshape",
    "softmax": "write e = ts.tile.exp(x - ts.tile.row_max(x)[:, None]), e / ts.tile.row_sum(e)[:, None]",
    "histogram": "ts.tile.scatter_add(x, index, source) counts",
    "topk": "at = ts.tile.argsort(x, axis, descending=True) and its first k: at[:, :k]",
    **dict.fromkeys(("tril", "triu"), "compare positions: ts.tile.where(row[:, None] >= column[None, :], x, 0)"),
    "leaky_relu": "write ts.tile.where(x > 0, x, 0.01 * x)",
    "elu": "write ts.tile.where(x > 0, x, ts.tile.expm1(x))",
    "clip": "write ts.tile.minimum(ts.tile.maximum(x, low), high)",
    **dict.fromkeys(("var", "std"), "apart = x - ts.tile.row_mean(x)[:, None], and the mean of its square"),
    **dict.fromkeys(("alloc_fragment", "empty", "clear", "fill"), "write ts.tile.zeros(shape, dtype)"),
    **dict.fromkeys(("Pipelined", "Parallel", "serial", "Kernel"), "write for k in ts.tile.range_k(0, K, 32)"),
    **dict.fromkeys(("gemm", "wgmma_gemm"), "write acc = ts.tile.mma(a, b, acc)"),
    **dict.fromkeys(("copy", "tma_load"), f"{_BLOCKS}; an assignment to one stores"),
    **dict.fromkeys(("bid", "block_idx"), "ts.tile.program_id(axis) numbers programs"),
    **dict.fromkeys(("num_blocks", "grid_dim"), "ts.tile.num_programs(axis) counts programs"),
    "inline_asm_elementwise": "the functions of ts.tile have the instructions of the target",
    **dict.fromkeys(("math", "libdevice", "extra"), "its functions are those of ts.tile: ts.tile.exp"),
}
_SCHEDULE = "lr= may be a function of the step: ts.optimizers.{}"
_SCHEDULES = {
    "LinearLR": "Linear(start, end, steps)",
    "ConstantLR": "Constant(value, warmup)",
    "StepLR": "Exponential(start, factor, every, stairs=True)",
    "MultiStepLR": "Joined((Constant(1e-3), Constant(1e-4)), at=(1000,))",
    "ExponentialLR": "Exponential(start, factor)",
    "CosineAnnealingLR": "Cosine(peak, steps, warmup, end)",
    "CosineAnnealingWarmRestarts": "Joined([Cosine(peak, steps)] * 3, at=(steps, 2 * steps))",
    "OneCycleLR": "OneCycle(peak, steps)",
    "PolynomialLR": "Polynomial(start, 0.0, steps, power)",
    "SequentialLR": "Joined(schedules, at=milestones)",
    "lr_scheduler": "Cosine(peak, steps, warmup), Exponential, Linear, Joined ...",
    "exponential_decay": "Exponential(start, factor, every)",
    "cosine_decay_schedule": "Cosine(peak, steps, end=)",
    "warmup_cosine_decay_schedule": "Cosine(peak, steps, warmup, end)",
    "linear_schedule": "Linear(start, end, steps)",
    "polynomial_schedule": "Polynomial(start, end, steps, power)",
    "join_schedules": "Joined(schedules, at=boundaries)",
}
"""PyTorch's and Optax's, and ours"""
_OF_OPTIMIZERS: dict[str, str] = {
    "recover_and_continue": "leave out the try: @ts.fault_tolerant(max_restarts=3) starts again from the last state",
    **{name: _SCHEDULE.format(ours) for name, ours in _SCHEDULES.items()},
    "LambdaLR": "lr= may be a lambda of the step, of ts operators",
    "ReduceLROnPlateau": "opt.update(..., lr=rate) has another rate for one step, optimizer.lr = rate from then on",
    **dict.fromkeys(
        ("NAdam", "RAdam", "Adadelta", "Rprop"), "a subclass of Optimizer with moments and changed() is a rule"
    ),
    "LBFGS": "scipy.optimize.minimize(..., jac=True) takes ts.value_and_grad(loss) of the vector of ts.tree_ravel",
    **{name.lower(): f"it is {name}" for name in ("SGD", "Adam", "AdamW", "Lion", "LAMB", "RMSprop", "Adagrad")},
    **dict.fromkeys(("apply_updates", "GradientTransformation"), "opt.update(model, gradient, state) gives the model"),
    **dict.fromkeys(("clip_grad_value_", "clip_by_value"), "chain(ClipValue(most), AdamW(1e-3))"),
    "clip_by_global_norm": "chain(ClipNorm(1.0), AdamW(1e-3)), or AdamW(1e-3, clip=1.0)",
    **dict.fromkeys(("multi_transform", "masked"), "groups=(Group(matches, lr=, frozen=),)"),
}
_GRADIENT_OF = "ts.grad(f) and ts.value_and_grad(f) compute gradients"
_DEVICE = "a function runs where its arguments are"


def _stored(value: str, other: str = "") -> str:
    """What to write for a method that changes a tensor in place."""
    return f"x = {other or value} is another tensor; x[...] = {value} stores to this one"


_OF_TENSOR: dict[str, str] = {
    **{name: f"write x.to(ts.{dtype})" for name, dtype in (_DTYPES | {"bfloat16": "bf16", "bool": "bool"}).items()},
    "zero_": _stored("0", "ts.zeros_like(x)"),
    "fill_": _stored("value", "ts.full_like(x, value)"),
    "copy_": _stored("y", "y"),
    **{f"{name}_": _stored(f"ts.{name}(seed, x.shape)") for name in ("normal", "uniform")},
    **dict.fromkeys(("type", "type_as"), "write x.to(dtype)"),
    "dim": "write x.ndim",
    "numel": "write x.size",
    "t": "write x.T",
    "clone": "in a function a value does not change and needs no copy; outside, x.copy()",
    "data": "write x.detach(); x[...] = y stores to x, under ts.no_grad() to parameters that require a gradient",
    **dict.fromkeys(("item", "numpy", "tolist"), "its elements are known when the program runs: return it"),
    **dict.fromkeys(("backward", "grad", "requires_grad", "requires_grad_"), _GRADIENT_OF),
    **dict.fromkeys(("device", "cuda", "cpu", "is_cuda", "to_device"), _DEVICE),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full"), "write ts.zeros(shape, x.dtype)"),
    "at": f"in a function write x[i] = value, which changes x alone; where indices repeat, {_BY_INDEX}",
    **dict.fromkeys(("index_add", "scatter_reduce"), _BY_INDEX),
    "avg": "write x.mean(axis)",
    "where": "write ts.where(condition, x, y)",
    **{name: f"write ts.linalg.{name}(x)" for name in ("det", "slogdet", "cholesky", "qr", "svd", "matrix_power")},
    "inverse": "write ts.linalg.inv(x)",
    "pinverse": "write ts.linalg.pinv(x)",
    "unfold": "write ts.sliding_window_view(x, size, axis, step)",
    "values": "max(axis=) is the values themselves; argmax the places",
    "indices": "argmax and argsort give places",
}  # fmt: skip
_OF_OPERATORS: dict[str, str] = {
    **dict.fromkeys(("inplace", "out"), "results are new: x = ts.f(x)"),
    "device": f"{_DEVICE}; x.to(device) moves what was made",
    "requires_grad": "write x.requires_grad_() behind it",
    "approximate": "ts.gelu_tanh is the approximation by tanh",
    "beta": "write ts.softplus(beta * x) / beta",
    "dtype": "convert an operand before: x.to(ts.f64)",
    "unbiased": "correction=0 divides by the number (unbiased=False), correction=1 by one less",
}
_OF_MODULE: dict[str, str] = {
    **dict.fromkeys(
        ("train", "eval"),
        "leave it out: ts.train trains dropout and batch normalisation; elsewhere drop(x, key) and y, norm = norm(x,"
        " training=True) do so",
    ),
    "forward": "define it, def forward(self, x): ..., or __call__",
    **dict.fromkeys(("cuda", "cpu"), "write model.to('cuda') or model.to('cpu')"),
    **dict.fromkeys(("float", "half", "double", "bfloat16"), "write model.to(ts.f32), ts.f16 and so on"),
    **dict.fromkeys(("children", "modules", "named_modules"), "its fields are its modules"),
    "register_parameter": "set it: self.scale = ts.ones((8,)); an array of floats is a parameter",
    **{f"running_{name}": f"it is norm.{name}, and norm.replace({name}=...) sets it" for name in ("mean", "var")},
    "apply": "write a loop over model.named_parameters(), and model.load_state_dict",
}
FOREIGN_PARAMETERS: dict[str, str] = {
    **dict.fromkeys(("in_features", "in_channels"), "inputs="),
    **dict.fromkeys(("out_features", "out_channels"), "outputs="),
    **dict.fromkeys(("embedding_dim", "embed_dim", "d_model", "normalized_shape"), "features="),
    **dict.fromkeys(("num_features", "num_channels"), "channels="),
    "kernel_size": "kernel=",
    "num_embeddings": "rows=",
    **dict.fromkeys(("num_heads", "nhead"), "heads="),
    "num_groups": "groups=",
    "dim_feedforward": "hidden=",
    "batch_first": "nothing (x is [B, T, D])",
    "bidirectional": "two layers, of x and of ts.flip(x, 1),",
    "num_layers": "a list of layers",
    "padding_idx": "nothing (a row outside of the table, such as -1, reads 0)",
    "device": "model.to(device)",
}
"""parameters of PyTorch's layers, and what to write for them"""
_OF_OPTIMIZER: dict[str, str] = {
    **dict.fromkeys(
        ("step", "zero_grad"),
        "an optimizer without parameters is a rule: model, state = opt.update(model, gradient,"
        " state), with opt.init(model) at first; AdamW(model.parameters(), lr=1e-3) holds them, and has step()",
    ),
    **dict.fromkeys(
        ("init", "update"),
        "it holds its parameters, and has step(); AdamW(1e-3), without parameters, is a rule with init and update",
    ),
    **dict.fromkeys(("state_dict", "load_state_dict"), "the state is opt.init(model): ts.checkpoint.save keeps it"),
    "param_groups": "groups=[Group(matches, lr=)] sets other values for some parameters, optimizer.lr = ... the rate",
}
_INSIDE: dict[str, str] = {
    "rand": "it draws from another seed at each call; inside, give a seed: ts.uniform(seed, shape)",
    "randn": "it draws from another seed at each call; inside, give a seed: ts.normal(seed, shape)",
}
_STATIC = "numbers annotated int, bool, str or not at all are known when it is compiled, those annotated ts.f32 are not"
_OF_DECORATOR: dict[str, str] = {
    **dict.fromkeys(("static_argnums", "static_argnames"), f"leave it out: {_STATIC}"),
    **dict.fromkeys(("donate_argnums", "donate_argnames"), "leave it out: a ts.StatefulObject is changed in place"),
    **dict.fromkeys(("dynamic", "abstracted_axes"), 'open_dims="B" leaves the size of a dim open'),
    **dict.fromkeys(("nopython", "fastmath", "parallel", "cache", "fullgraph", "mode", "backend"), "leave it out"),
}
_OF_PROGRAM: dict[str, str] = {
    **dict.fromkeys(("export", "to_onnx", "save", "serialize"), _SAVED),
    **dict.fromkeys(("grad", "backward", "value_and_grad"), _GRADIENTS),
    **dict.fromkeys(("parameters", "state_dict", "train", "eval"), _MODULES),
    **dict.fromkeys(("lower", "as_text", "ptx", "asm"), "ts.compile(f, ...) has ir(level), source and assembly"),
}


def instead(name: str, package: str = "tessera") -> str:
    """The alternative to `<package>.<name>`; empty if there is none."""
    tables = {
        "tessera": _OF_PACKAGE, "tessera.nn": _OF_NN, "tessera.nn.init": _OF_INIT, "tessera.optimizers": _OF_OPTIMIZERS,
        "tessera.linalg": _OF_LINALG, "tessera.tile": _OF_TILE,
    }  # fmt: skip
    return tables.get(package, {}).get(name, "")


def instead_of_method(name: str) -> str:
    """The alternative to `f.<name>` for a function or kernel; empty if there is none."""
    return _OF_PROGRAM.get(name, "")


def instead_of_attribute(kind: str, name: str) -> str:
    """The alternative to an attribute of a tensor, a module or an optimizer; empty if there is none."""
    known = {"tensor": _OF_TENSOR, "module": _OF_MODULE, "optimizer": _OF_OPTIMIZER}[kind].get(name, "")
    if not known and kind == "tensor":
        known = _OF_PACKAGE.get(name, "")
    if not known and kind == "tensor" and name.endswith("_") and not name.startswith("_"):
        return _stored(f"x.{name[:-1]}(...)")
    return known


def instead_of_parameter(name: str) -> str:
    """The alternative to a parameter that other libraries' operators have; empty if there is none."""
    return _OF_OPERATORS.get(name, "")


def instead_of_option(name: str) -> str:
    """The alternative to a keyword that other libraries' decorators have; empty if there is none."""
    return _OF_DECORATOR.get(name, "")


def rows_given(expected: str, given: int, rank: int, type_: str) -> str:
    """What is said of a tensor whose rows are more or fewer than the names that they are assigned to."""
    said = f"{expected} values are expected here, {given} {'is' if given == 1 else 'are'} given: the rows of one tensor"
    states = "; nn.LSTM and nn.GRU give their last state, too, where they get one: layer(x, layer.initial(x))"
    return f"{said}, {type_}{states if rank == 3 and expected == '2' else ''}"


def rows_named(layer: object) -> str:
    """What is said where two names get the rows of what a layer of this class gives, which PyTorch's gives with a
    second result; empty for other classes."""
    why = getattr(layer, "_one_result", "")
    name = getattr(layer, "__name__", "")
    meant = "where the rows are meant, name the tensor first"
    return f"{name} gives one tensor, and these names are its two rows; {why}; {meant}" if why else ""


ONLY_REFUSES = "only_refuses"
"""set on a `__getattr__` that has no attributes to give: what it would say takes longer than finding out"""


def no_attribute(kind: str, owner: object, name: str, otherwise: str = "") -> AttributeError:
    """The error for an attribute that a tensor, a module or an optimizer does not have; `otherwise`: what to write
    where nothing is said of it here."""
    why = "" if name.startswith("_") else instead_of_attribute(kind, name) or otherwise
    owned = "Tensor" if kind == "tensor" else type(owner).__name__
    said = f"{owned!r} object has no attribute {name!r}{why and f'; {why}'}"
    return AttributeError(said, name=name, obj=owner)


def no_name(module: str, name: str, why: str) -> UnknownName | UnknownImport:
    """The error for a name that a module does not have, at the line that asks for it."""
    callsite = deferred("runtime.callsite")
    place = callsite.call_place()
    imported = place is not None and place[0].co_code[place[1]] == _IMPORT_FROM
    said = f"module {module!r} has no {'name' if imported else 'attribute'} {name!r}{why and f'; {why}'}"
    return (UnknownImport if imported else UnknownName)(Diagnostic("TS104", said, callsite.span_at(place)))


_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]


def instead_inside(name: str) -> str:
    """The alternative inside a function or kernel to `tessera.<name>`, which exists only outside."""
    return _INSIDE.get(name, "it is called outside of functions and kernels")
