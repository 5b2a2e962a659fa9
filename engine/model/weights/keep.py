"""Where and in which form a model's weights are held, and how many bytes that will be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.model.linear import DenseLinear, Linear, Table, WeightForm, dense, size_of
from engine.model.weights.grouped import Rows, values_of
from engine.model.weights.quantised import held_bytes, quantised
from kernels.cpu.packed_weights import GROUP


class Keeping(Protocol):
    """Takes weights in as they are read."""

    def linear(self, parts: Iterable[Rows], shape: tuple[int, int], bias: Tensor | None) -> Linear:
        """The rows of `parts`, taken one after another, as one map of this shape `[rows, columns]`."""

    def table(self, parts: Iterable[Rows], shape: tuple[int, int]) -> Table:
        """An embedding, or a head."""

    def whole(self, weight: Tensor) -> Linear:
        """A small map that decides much, such as the router of a mixture: never quantised."""

    def vector(self, weight: Tensor) -> Tensor:
        """The weights of a norm."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """Keeps weights on `device` in `form`, for a model that runs in `dtype`."""

    device: torch.device
    dtype: torch.dtype
    form: WeightForm

    def linear(self, parts: Iterable[Rows], shape: tuple[int, int], bias: Tensor | None) -> Linear:
        """Quantised as `form` says."""
        form = WeightForm.INT8 if self.form is WeightForm.INT4 and shape[1] % GROUP else self.form
        match form:
            case WeightForm.FULL:
                return dense(self._values(parts), bias, self.device)
            case WeightForm.INT8:
                return quantised(parts, shape, bias, 8, self.dtype, self.device)
            case WeightForm.INT4:
                return quantised(parts, shape, bias, 4, self.dtype, self.device)

    def table(self, parts: Iterable[Rows], shape: tuple[int, int]) -> Table:
        """In 8 bits also when the rest has 4: it makes every logit, and in 4 bits the starter model's KL is 0.06
        instead of 0.002."""
        if self.form is WeightForm.FULL:
            return dense(self._values(parts), None, self.device)
        return quantised(parts, shape, None, 8, self.dtype, self.device)

    def whole(self, weight: Tensor) -> Linear:
        """As it is."""
        return dense([weight], None, self.device)

    def vector(self, weight: Tensor) -> Tensor:
        """As it is."""
        return weight.to(self.device)

    def _values(self, parts: Iterable[Rows]) -> Iterator[Tensor]:
        return (values_of(part).to(self.dtype) for part in parts)


@dataclass(slots=True)
class Counter:
    """Keeps nothing, and counts the bytes that a Keeper of this form would keep."""

    device: torch.device
    dtype: torch.dtype
    form: WeightForm
    bytes: int = 0

    def linear(self, parts: Iterable[Rows], shape: tuple[int, int], bias: Tensor | None) -> Linear:
        """Counts."""
        self._count(parts, shape, self.form)
        self.bytes += size_of(bias)
        return _NOTHING

    def table(self, parts: Iterable[Rows], shape: tuple[int, int]) -> Table:
        """Counts."""
        self._count(parts, shape, WeightForm.FULL if self.form is WeightForm.FULL else WeightForm.INT8)
        return _NOTHING

    def whole(self, weight: Tensor) -> Linear:
        """Counts."""
        self.bytes += size_of(weight)
        return _NOTHING

    def vector(self, weight: Tensor) -> Tensor:
        """Counts."""
        self.bytes += size_of(weight)
        return weight

    def _count(self, parts: Iterable[Rows], shape: tuple[int, int], form: WeightForm) -> None:
        columns = shape[1]
        full = sum(size_of(values_of(part)) for part in parts)  # they are checked as they are taken
        if form is WeightForm.FULL:
            self.bytes += full
            return
        bits = 4 if form is WeightForm.INT4 and columns % GROUP == 0 else 8
        self.bytes += held_bytes(shape, bits, self.dtype, self.device)


_NOTHING = DenseLinear(torch.empty(0, 0))
