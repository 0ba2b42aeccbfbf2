// SPDX-License-Identifier: Apache-2.0
//
// Layers of Network in which the tokens of sentences look at each other. None
// of them has parameters.
#include <memory>

#include "ops/attention.h"
#include "ops/dynamic_conv.h"
#include "thimble/network.h"

namespace thimble {

ValueId Network::DynamicConv(const std::string& name, ValueId u, ValueId taps,
                             const Text& text, const DynamicConvLayer& layer) {
  const auto stream = static_cast<uint32_t>(model_.graph.ops().size());
  return AddLayer(name,
                  std::make_shared<ops::DynamicConv>(ops::DynamicConvSettings{
                      .heads = layer.heads,
                      .kernel = layer.kernel,
                      .causal = layer.causal,
                      .dropout = static_cast<float>(layer.dropout),
                      .stream = stream}),
                  {u, taps, text.ends});
}

ValueId Network::Attention(const std::string& name, ValueId q, ValueId k,
                           ValueId v, const Text& query_text,
                           const Text& key_text, const AttentionLayer& layer) {
  const auto stream = static_cast<uint32_t>(model_.graph.ops().size());
  return AddLayer(name,
                  std::make_shared<ops::Attention>(ops::AttentionSettings{
                      .heads = layer.heads,
                      .causal = layer.causal,
                      .dropout = static_cast<float>(layer.dropout),
                      .stream = stream}),
                  {q, k, v, query_text.ends, key_text.ends});
}

}  // namespace thimble
