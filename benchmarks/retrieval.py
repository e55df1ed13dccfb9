"""Exact top-K of cosine: ours against plain torch and faiss, interleaved, one thread.

Run: `python benchmarks/retrieval.py` (minutes) or `python benchmarks/retrieval.py --paper` (the paper's bank, 4 GB).
Data: unit vectors in clusters of a 48-dimensional subspace, plus noise, so that neighbours crowd. Recall is against a
float64 search; faiss is measured where it can be imported.
"""

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.retrieval.search import top_k

K, PREFETCH, CHUNK = 64, 96, 256
Method = Callable[[Tensor, Tensor], Tensor]


def clustered(n: int, width: int, clusters: int, seed: int) -> Tensor:
    """Return (n, width) unit rows around `clusters` centres of a 48-dimensional subspace."""
    shared = torch.Generator().manual_seed(0)
    basis, centres = torch.randn(48, width, generator=shared), torch.randn(clusters, 48, generator=shared)
    own = torch.Generator().manual_seed(seed)
    low = centres[torch.randint(clusters, (n,), generator=own)] + 0.5 * torch.randn(n, 48, generator=own)
    return F.normalize(low @ basis + 0.5 * torch.randn(n, width, generator=own), dim=1)


def plain(query: Tensor, bank: Tensor) -> Tensor:
    return torch.cat([(part @ bank.T).topk(K, dim=1).indices for part in query.split(CHUNK)])


def plain_bf16(query: Tensor, bank: Tensor) -> Tensor:
    low = bank.bfloat16()
    return torch.cat([(part.bfloat16() @ low.T).topk(K, dim=1).indices for part in query.split(CHUNK)])


def faiss_flat(query: Tensor, bank: Tensor) -> Tensor:
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(bank.shape[1])
    index.add(bank.numpy())
    return torch.from_numpy(index.search(query.numpy(), K)[1])


def methods() -> dict[str, Method]:
    found: dict[str, Method] = {
        "ours, bf16 coarse product": lambda q, b: top_k(q, b, K, PREFETCH, low_precision=True, chunk=CHUNK).index,
        "ours, fp32 coarse product": lambda q, b: top_k(q, b, K, PREFETCH, low_precision=False, chunk=CHUNK).index,
        "torch fp32 + topk": plain,
        "torch bf16 + topk (not exact)": plain_bf16,
    }
    if importlib.util.find_spec("faiss"):
        found["faiss IndexFlatIP"] = faiss_flat
    return found


def exact(query: Tensor, bank: Tensor) -> Tensor:
    parts = [(q.double() @ bank.double().T).float() for q in query.split(32)]
    return torch.cat([p.sort(dim=1, descending=True, stable=True).indices[:, :K] for p in parts])


def recall(found: Tensor, truth: Tensor) -> float:
    return sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True)) / truth.numel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bank", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=1536)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--paper", action="store_true", help="140,413 windows, as in the paper's atomic training set")
    args = parser.parse_args()
    size = 140_413 if args.paper else args.bank
    torch.set_num_threads(1)
    bank, query = clustered(size, args.width, 2000, 1), clustered(args.queries, args.width, 2000, 2)
    truth, table = exact(query[:64], bank), methods()
    seconds: dict[str, list[float]] = {name: [] for name in table}
    cpu: dict[str, list[float]] = {name: [] for name in table}
    recalls = {}
    for _ in range(args.rounds):
        for name, method in table.items():
            start, start_cpu = time.perf_counter(), time.process_time()
            found = method(query, bank)
            seconds[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - start_cpu)
            recalls[name] = recall(found[:64], truth)
    widened = top_k(query, bank, K, PREFETCH, low_precision=True).widened
    print(f"bank {size} x {args.width}, {args.queries} queries, top {K}, one thread, {args.rounds} rounds")
    print(f"torch {torch.__version__}")
    for name in table:
        wall, used = statistics.median(seconds[name]), statistics.median(cpu[name])
        print(f"{name:32s} median {wall:7.3f} s wall {used:7.3f} s CPU   recall@{K} {recalls[name]:.6f}")
    print(f"proposals widened: {widened} of {args.queries}")
    if "faiss IndexFlatIP" not in table:
        print("faiss is not installed: not compared", file=sys.stderr)


if __name__ == "__main__":
    main()
