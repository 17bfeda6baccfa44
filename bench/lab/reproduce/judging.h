// SPDX-License-Identifier: Apache-2.0
// What judges of claims share.
#ifndef ALIBI_BENCH_LAB_REPRODUCE_JUDGING_H_
#define ALIBI_BENCH_LAB_REPRODUCE_JUDGING_H_

#include <string>
#include <vector>

#include "bench/lab/reproduce/claims.h"

namespace alibi::bench::lab {

// "12.3 %" of 0.123; two digits below one percent.
std::string Percent(double part);

Judgement When(bool holds, std::string here, std::string why_not = "");
// A cost in cycles: `paper` is the paper's.
Judgement Cost(double here, double paper, std::string text);

// Of each paper, in the order of its .inc file.
std::vector<Claim> TranslationClaims();  // Adams and Agesen
std::vector<Claim> MacroClaims();        // Adams and Agesen, whole programs
std::vector<Claim> Macro32Claims();      // those of them that 32-bit guests run as well
std::vector<Claim> HostedIoClaims();     // Sugerman, Venkitachalam and Lim
std::vector<Claim> VmiClaims();          // Amsden and others
std::vector<Claim> TypeIiClaims();       // King, Dunlap and Chen
std::vector<Claim> TypeIiCuresClaims();  // the same, with less kept than all

}  // namespace alibi::bench::lab

#endif  // ALIBI_BENCH_LAB_REPRODUCE_JUDGING_H_
