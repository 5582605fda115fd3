"""Support vector machines on held-out prompts, Fisher ratios, and projections to the plane."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from experiments.recorded.scores import folds
from experiments.separability.settings import SvmSettings

Features = Callable[[Int[np.ndarray, " n"]], Float[np.ndarray, "Q F"]]
"""From the training part to features of all prompts; their squared length is about 1 on average."""


def standardised(x: Float[np.ndarray, "Q F"]) -> Features:
    """Each column with mean 0 and variance 1/F over the training part."""
    return lambda train: np.asarray(StandardScaler().fit(x[train]).transform(x)) / np.sqrt(x.shape[1])


def tfidf(prompts: Sequence[str], analyzer: str, ngrams: tuple[int, int]) -> Features:
    """TF-IDF of words or characters, vocabulary and weights from the training part."""
    texts = np.array(prompts, dtype=object)

    def features(train: np.ndarray) -> np.ndarray:
        fitted = TfidfVectorizer(analyzer=analyzer, ngram_range=ngrams, sublinear_tf=True).fit(texts[train])
        return fitted.transform(texts).toarray()  # pyright: ignore[reportAttributeAccessIssue]

    return features


def held_out_hits(
    features: Features, label: Int[np.ndarray, " Q"], kernel: str, settings: SvmSettings, seed: int
) -> Bool[np.ndarray, " Q"]:
    """Whether an SVM that was fitted and tuned without a prompt's fold tells its label."""
    fold = folds(label, settings.folds, seed)
    hits = np.zeros(len(label), bool)
    for held in np.unique(fold):
        train, test = np.flatnonzero(fold != held), np.flatnonzero(fold == held)
        gram = _gram(features(train), kernel)
        C = _tuned(gram, label, train, settings, seed)
        hits[test] = _predict(gram, label, train, test, C) == label[test]
    return hits


def _gram(x: Float[np.ndarray, "Q F"], kernel: str) -> Float[np.ndarray, "Q Q"]:
    """Linear products, or exp(-|x - y|^2): with a mean squared length of 1 that is scikit-learn's gamma: scale."""
    products = x @ x.T
    if kernel == "linear":
        return products
    squares = np.diag(products)
    return np.exp(-np.maximum(squares[:, None] + squares[None, :] - 2 * products, 0.0))


def _tuned(gram: np.ndarray, label: np.ndarray, train: np.ndarray, settings: SvmSettings, seed: int) -> float:
    """The C of most hits in cross-validation within the training part, the smallest of equals."""
    inner = folds(label[train], settings.inner_folds, seed)
    hits = dict.fromkeys(sorted(settings.C), 0)
    for held in np.unique(inner):
        fit, test = train[inner != held], train[inner == held]
        for C in hits:
            hits[C] += int((_predict(gram, label, fit, test, C) == label[test]).sum())
    return max(hits, key=lambda C: hits[C])


def _predict(gram: np.ndarray, label: np.ndarray, train: np.ndarray, test: np.ndarray, C: float) -> np.ndarray:
    if len(np.unique(label[train])) == 1:  # nothing to separate
        return np.full(len(test), label[train][0])
    machine = SVC(C=C, kernel="precomputed").fit(gram[np.ix_(train, train)], label[train])
    return machine.predict(gram[np.ix_(test, train)])


class Fisher(NamedTuple):
    """Scatter between the classes over scatter within, and what labels dealt by lot give (95 % of them are below)."""

    ratio: float
    by_lot: float


def fisher(x: Float[np.ndarray, "Q F"], label: Int[np.ndarray, " Q"], permutations: int, seed: int) -> Fisher:
    r"""$\mathrm{tr} S_B / \mathrm{tr} S_W$ of standardised features.

    A sum over features on purpose: the inverse of $S_W$ does not exist with more features than prompts.
    """
    z = standardised(x)(np.arange(len(x)))
    rng = np.random.default_rng(seed)
    lots = [_ratio(z, rng.permutation(label)) for _ in range(permutations)]
    return Fisher(_ratio(z, label), float(np.quantile(lots, 0.95)))


def _ratio(z: np.ndarray, label: np.ndarray) -> float:
    total = float((z**2).sum())
    membership = label[:, None] == np.unique(label)[None, :]
    sums = membership.T.astype(float) @ z
    between = float(((sums**2).sum(axis=1) / membership.sum(axis=0)).sum())
    return between / max(total - between, 1e-30)


class Planes(NamedTuple):
    """Two coordinates of prompts that the projections were not fitted on."""

    pca: Float[np.ndarray, "n 2"]
    lda: Float[np.ndarray, "n 2"]


def planes(x: Float[np.ndarray, "Q F"], label: Int[np.ndarray, " Q"], fitted: Bool[np.ndarray, " Q"]) -> Planes:
    """PCA and shrunken LDA (Ledoit-Wolf) of the marked prompts, applied to the others.

    With more features than prompts LDA separates whatever it was fitted on, so only others show anything.
    """
    z = standardised(x)(np.flatnonzero(fitted))
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=2).fit(z[fitted], label[fitted])
    pca = PCA(2, svd_solver="full").fit(z[fitted])
    return Planes(pca.transform(z[~fitted]), lda.transform(z[~fitted]))
