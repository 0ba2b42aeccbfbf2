// SPDX-License-Identifier: Apache-2.0
#include "onednn_peer.h"
#include "onednn_primitive.h"

namespace thimble::bench {
namespace {

dnnl::memory::desc Stored(const dnnl::memory::desc& f32, Tag tag, DType dtype) {
  using Type = dnnl::memory::data_type;
  return {f32.dims(), dtype == DType::kBF16 ? Type::bf16 : Type::f32, tag};
}

}  // namespace

// Each pass is a product a b of the three tensors, some of them read as their
// transpose: x wᵀ, grad_y w, grad_yᵀ x. The second factor of a forward or input
// gradient is the weights, for which oneDNN may choose a layout.
std::unique_ptr<Side> OneDnnMatmul(const MatmulSize& s, MatmulPass pass,
                                   DType dtype) {
  auto side = std::make_unique<OneDnnSide>();
  const auto x = F32({s.rows, s.in}, Tag::ab);
  const auto y = F32({s.rows, s.out}, Tag::ab);
  dnnl::memory::desc a, b, c;
  Tag a_tag = Tag::ab;
  bool b_is_weights = true;
  int64_t seed_a = 1;
  int64_t seed_b = 2;
  switch (pass) {
    case MatmulPass::kForward:
      a = x;
      b = F32({s.in, s.out}, Tag::ba);
      c = y;
      break;
    case MatmulPass::kGradInput:
      a = y;
      b = F32({s.out, s.in}, Tag::ab);
      c = x;
      seed_a = 3;
      break;
    case MatmulPass::kGradWeight:
      a_tag = Tag::ba;
      a = F32({s.out, s.rows}, a_tag);
      b = x;
      c = F32({s.out, s.in}, Tag::ab);
      b_is_weights = false;
      seed_a = 3;
      seed_b = 1;
      break;
  }
  const dnnl::matmul::primitive_desc pd(
      {Stored(a, a_tag, dtype),
       Stored(b, b_is_weights ? Tag::any : Tag::ab, dtype),
       Stored(c, Tag::ab, dtype)},
      side->engine());
  const auto elements = [](const dnnl::memory::desc& desc) {
    return desc.dims()[0] * desc.dims()[1];
  };
  side->Put(DNNL_ARG_SRC, Values(elements(a), static_cast<uint32_t>(seed_a)), a,
            pd.src_desc());
  side->Put(DNNL_ARG_WEIGHTS,
            Values(elements(b), static_cast<uint32_t>(seed_b)), b,
            pd.weights_desc());
  side->PutEmpty(DNNL_ARG_DST, pd.dst_desc());
  side->Set(dnnl::matmul(pd), pd.impl_info_str(), DNNL_ARG_DST, c);
  return side;
}

}  // namespace thimble::bench
