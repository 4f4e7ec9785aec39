"""The gradient that a step of `ts.train` takes. Editors read this text for the hints of a loss."""

from __future__ import annotations

import tessera as ts
from tessera.language.drawing import held_averages, moved_averages


def gradient_of(loss, model, given, named, scale):
    """loss(model, *given, **named): its value, its other results, the buffers that layers have moved, by path, and the
    gradient of scale * value by the model."""

    def scaled(model):
        buffers = held_averages(model)
        result = loss(model, *given, **named)
        value, more = (result[0], result[1:]) if isinstance(result, tuple) else (result, ())
        assert value is not None, "the loss is None: it returns nothing, or not on each path"
        assert not isinstance(value, (dict, list)), "the loss is a number; (loss, {name: number}) logs others"
        return value * scale, (value, more, moved_averages(buffers))

    (_, (value, more, averages)), gradient = ts.value_and_grad(scaled, has_aux=True)(model)
    return value, more, averages, gradient
