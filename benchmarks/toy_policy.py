"""A policy small enough for float64 on one core, with all that OraPO needs: prompts, reports, rollouts, rewards.

Reports come from a random language (each word has four successors), templated as radiology reports are. The reference
is a transformer that has learnt it by maximum likelihood; a policy starts as its copy.

Shapes: R rows of any kind, L prompt tokens, T response tokens, P prompts, K rollouts, G = K + 1 rows of a prompt (the
true report last), F finding words.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from radverl.orapo import group_advantages, log_ratio_sums, mixing_weight, zero_reward_rate

WORDS, SUCCESSORS, FINDINGS = 64, 4, range(1, 15)  # word 0 ends a report; the reward looks for 14 of the others
PROMPT, SHORTEST, LONGEST = 4, 8, 32


class Policy(nn.Module):
    """Causal transformer of two layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.positions = nn.Embedding(PROMPT + LONGEST, width)
        layer = nn.TransformerEncoderLayer(width, 2, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens_RT: Tensor) -> Tensor:
        """Log-probs of the next word, (R, T, WORDS)."""
        length = tokens_RT.shape[1]
        future = torch.full((length, length), -torch.inf, dtype=self.head.weight.dtype).triu(1)
        hidden = self.layers(self.words(tokens_RT) + self.positions.weight[:length], mask=future, is_causal=True)
        return self.head(hidden).log_softmax(-1)

    def log_probs(self, prompts_PL: Tensor, tokens_PGT: Tensor) -> Tensor:
        """log pi(y_t | prompt, y_<t), (P, G, T)."""
        tokens_RT = tokens_PGT.flatten(0, 1)
        prompts_RL = prompts_PL.repeat_interleave(tokens_PGT.shape[1], 0)
        predicted = self(torch.cat([prompts_RL, tokens_RT], 1)[:, :-1])[:, PROMPT - 1 :]
        return predicted.gather(-1, tokens_RT[..., None]).view_as(tokens_PGT)


@dataclass
class Batch:
    """A rollout batch with all that stays fixed during its updates."""

    prompts_PL: Tensor
    tokens_PGT: Tensor
    mask_PGT: Tensor
    old_PGT: Tensor
    ref_PGT: Tensor
    advantages_PK: Tensor
    weights_P: Tensor

    def __getitem__(self, part: Tensor) -> "Batch":
        """The mini-batch of some prompts."""
        return Batch(*(tensor[part] for tensor in vars(self).values()))

    def dpo_arguments(self, log_probs_PGT: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """delta_gt_P, delta_PK, lengths_gt_P, lengths_PK."""
        delta_PG, lengths_PG = log_ratio_sums(log_probs_PGT, self.ref_PGT, self.mask_PGT)
        return delta_PG[:, -1], delta_PG[:, :-1], lengths_PG[:, -1], lengths_PG[:, :-1]


class Simulation:
    """The language, its reports, the reference policy and rollouts of any other."""

    def __init__(self, seed: int, warm_steps: int) -> None:
        self.seed = seed
        torch.manual_seed(seed)
        self.successors = torch.rand(WORDS, WORDS - 1).argsort(-1)[:, :SUCCESSORS] + 1
        self.reference = Policy().double()
        optimizer = torch.optim.AdamW(self.reference.parameters(), lr=3e-3)
        for _ in range(warm_steps):
            prompts_PL, reports_PT, mask_PT = self.reports(64)
            log_probs_PGT = self.reference.log_probs(prompts_PL, reports_PT[:, None])
            optimizer.zero_grad()
            (-log_probs_PGT[:, 0][mask_PT].mean()).backward()
            optimizer.step()

    def reports(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Prompts (P, L), true reports (P, T) with their end, mask (P, T)."""
        prompts_PL = torch.randint(1, WORDS, (count, PROMPT))
        words = [prompts_PL[:, -1]]
        for _ in range(LONGEST):
            words.append(self.successors[words[-1], torch.randint(0, SUCCESSORS, (count,))])
        lengths_P1 = torch.randint(SHORTEST, LONGEST + 1, (count, 1))
        at_T = torch.arange(LONGEST)
        return prompts_PL, torch.stack(words[1:], 1) * (at_T < lengths_P1 - 1), at_T < lengths_P1

    @torch.no_grad()
    def rollouts(self, policy: Policy, prompts: int, rollouts: int) -> Batch:
        """New prompts, sampled reports of each, their advantages and weights w_i; the reward is F1 over findings."""
        prompts_PL, reports_PT, report_mask_PT = self.reports(prompts)
        tokens = prompts_PL.repeat_interleave(rollouts, 0)
        for _ in range(LONGEST):
            tokens = torch.cat([tokens, policy(tokens)[:, -1].exp().multinomial(1)], 1)
        sampled_PKT = tokens[:, PROMPT:].view(prompts, rollouts, LONGEST)
        ends = (sampled_PKT == 0).long()
        mask_PKT = ends.cumsum(-1) - ends == 0  # up to the first end, and with it
        tokens_PGT = torch.cat([sampled_PKT * mask_PKT, reports_PT[:, None]], 1)
        mask_PGT = torch.cat([mask_PKT, report_mask_PT[:, None]], 1)

        has_PGF = torch.stack([((tokens_PGT == word) & mask_PGT).any(-1) for word in FINDINGS], -1)
        said_PKF, true_P1F = has_PGF[:, :-1], has_PGF[:, -1:]
        rewards_PK = 2.0 * (said_PKF & true_P1F).sum(-1) / (said_PKF.sum(-1) + true_P1F.sum(-1)).clamp(min=1)
        return Batch(
            prompts_PL,
            tokens_PGT,
            mask_PGT,
            policy.log_probs(prompts_PL, tokens_PGT),
            self.reference.log_probs(prompts_PL, tokens_PGT),
            group_advantages(rewards_PK),
            torch.as_tensor(mixing_weight([zero_reward_rate(rewards_K) for rewards_K in rewards_PK])),
        )
