// SPDX-License-Identifier: Apache-2.0
// The built-in kernels (kernels.h) in PTX, for a real card; the simulated driver only looks for their names. They use
// the oldest instruction set that current drivers still compile, so that any card can run them. Every kernel walks its
// range with a grid-sized stride, so the launch may have any shape. A launch of sublet_busy should have one thread.
#pragma once

namespace simgpu::kernels {

inline constexpr const char* ptx = R"ptx(
.version 6.0
.target sm_50
.address_size 64

.visible .entry sublet_busy(.param .u64 p_nanoseconds)
{
  .reg .pred %again;
  .reg .b64 %limit, %start, %now, %passed;
  ld.param.u64 %limit, [p_nanoseconds];
  mov.u64 %start, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %start;
  setp.lt.u64 %again, %passed, %limit;
  @%again bra again;
  ret;
}

.visible .entry sublet_fill(.param .u64 p_data, .param .u64 p_words, .param .u64 p_seed)
{
  .reg .pred %done, %odd, %differs;
  .reg .b32 %block, %size, %thread, %blocks;
  .reg .b64 %data, %words, %i, %stride, %at;
  .reg .b64 %seed, %z, %t;
  ld.param.u64 %data, [p_data];
  ld.param.u64 %words, [p_words];
  ld.param.u64 %seed, [p_seed];
  cvta.to.global.u64 %data, %data;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %block, %size, %i;
  mul.wide.u32 %stride, %blocks, %size;
next:
  setp.ge.u64 %done, %i, %words;
  @%done bra end;
  add.u64 %z, %i, 1;
  mad.lo.u64 %z, %z, 0x9E3779B97F4A7C15, %seed;
  shr.u64 %t, %z, 30;
  xor.b64 %z, %z, %t;
  mul.lo.u64 %z, %z, 0xBF58476D1CE4E5B9;
  shr.u64 %t, %z, 27;
  xor.b64 %z, %z, %t;
  mul.lo.u64 %z, %z, 0x94D049BB133111EB;
  shr.u64 %t, %z, 31;
  xor.b64 %z, %z, %t;
  shl.b64 %at, %i, 3;
  add.u64 %at, %at, %data;
  st.global.u64 [%at], %z;
  add.u64 %i, %i, %stride;
  bra next;
end:
  ret;
}

.visible .entry sublet_check(.param .u64 p_data, .param .u64 p_words, .param .u64 p_seed, .param .u64 p_out)
{
  .reg .pred %done, %odd, %differs;
  .reg .b32 %block, %size, %thread, %blocks;
  .reg .b64 %data, %words, %i, %stride, %at;
  .reg .b64 %seed, %z, %t, %out, %word, %count;
  ld.param.u64 %data, [p_data];
  ld.param.u64 %words, [p_words];
  ld.param.u64 %seed, [p_seed];
  ld.param.u64 %out, [p_out];
  cvta.to.global.u64 %data, %data;
  cvta.to.global.u64 %out, %out;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %block, %size, %i;
  mul.wide.u32 %stride, %blocks, %size;
  mov.u64 %count, 0;
next:
  setp.ge.u64 %done, %i, %words;
  @%done bra end;
  add.u64 %z, %i, 1;
  mad.lo.u64 %z, %z, 0x9E3779B97F4A7C15, %seed;
  shr.u64 %t, %z, 30;
  xor.b64 %z, %z, %t;
  mul.lo.u64 %z, %z, 0xBF58476D1CE4E5B9;
  shr.u64 %t, %z, 27;
  xor.b64 %z, %z, %t;
  mul.lo.u64 %z, %z, 0x94D049BB133111EB;
  shr.u64 %t, %z, 31;
  xor.b64 %z, %z, %t;
  shl.b64 %at, %i, 3;
  add.u64 %at, %at, %data;
  ld.global.u64 %word, [%at];
  setp.ne.u64 %differs, %word, %z;
  @%differs add.u64 %count, %count, 1;
  add.u64 %i, %i, %stride;
  bra next;
end:
  setp.ne.u64 %differs, %count, 0;
  @%differs red.global.add.u64 [%out], %count;
  ret;
}

.visible .entry sublet_hash(.param .u64 p_data, .param .u64 p_words, .param .u64 p_out)
{
  .reg .pred %done, %odd, %differs;
  .reg .b32 %block, %size, %thread, %blocks;
  .reg .b64 %data, %words, %i, %stride, %at;
  .reg .b64 %out, %word, %count, %weight, %leap, %base, %n;
  ld.param.u64 %data, [p_data];
  ld.param.u64 %words, [p_words];
  ld.param.u64 %out, [p_out];
  cvta.to.global.u64 %data, %data;
  cvta.to.global.u64 %out, %out;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %block, %size, %i;
  mul.wide.u32 %stride, %blocks, %size;
  mov.u64 %count, 0;
  // weight = factor^(i+1), leap = factor^stride
  mov.u64 %weight, 0xD1342543DE82EF95;
  mov.u64 %base, %weight;
  mov.u64 %n, %i;
power_i:
  setp.eq.u64 %done, %n, 0;
  @%done bra power_i_end;
  and.b64 %at, %n, 1;
  setp.eq.u64 %odd, %at, 1;
  @%odd mul.lo.u64 %weight, %weight, %base;
  mul.lo.u64 %base, %base, %base;
  shr.u64 %n, %n, 1;
  bra power_i;
power_i_end:
  mov.u64 %leap, 1;
  mov.u64 %base, 0xD1342543DE82EF95;
  mov.u64 %n, %stride;
power_s:
  setp.eq.u64 %done, %n, 0;
  @%done bra power_s_end;
  and.b64 %at, %n, 1;
  setp.eq.u64 %odd, %at, 1;
  @%odd mul.lo.u64 %leap, %leap, %base;
  mul.lo.u64 %base, %base, %base;
  shr.u64 %n, %n, 1;
  bra power_s;
power_s_end:
next:
  setp.ge.u64 %done, %i, %words;
  @%done bra end;
  shl.b64 %at, %i, 3;
  add.u64 %at, %at, %data;
  ld.global.u64 %word, [%at];
  mad.lo.u64 %count, %word, %weight, %count;
  add.u64 %i, %i, %stride;
  mul.lo.u64 %weight, %weight, %leap;
  bra next;
end:
  setp.ne.u64 %differs, %count, 0;
  @%differs red.global.add.u64 [%out], %count;
  ret;
}

.visible .entry sublet_fill16(.param .u64 p_data, .param .u64 p_words, .param .u64 p_low, .param .u64 p_high)
{
  .reg .pred %done, %odd, %differs;
  .reg .b32 %block, %size, %thread, %blocks;
  .reg .b64 %data, %words, %i, %stride, %at;
  .reg .b64 %low, %high;
  ld.param.u64 %data, [p_data];
  ld.param.u64 %words, [p_words];
  ld.param.u64 %low, [p_low];
  ld.param.u64 %high, [p_high];
  cvta.to.global.u64 %data, %data;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %block, %size, %i;
  mul.wide.u32 %stride, %blocks, %size;
next:
  setp.ge.u64 %done, %i, %words;
  @%done bra end;
  shl.b64 %at, %i, 4;
  add.u64 %at, %at, %data;
  st.global.v2.u64 [%at], {%low, %high};
  add.u64 %i, %i, %stride;
  bra next;
end:
  ret;
}

.visible .entry sublet_check16(.param .u64 p_data, .param .u64 p_words, .param .u64 p_low,
    .param .u64 p_high, .param .u64 p_out)
{
  .reg .pred %done, %odd, %differs;
  .reg .b32 %block, %size, %thread, %blocks;
  .reg .b64 %data, %words, %i, %stride, %at;
  .reg .b64 %low, %high, %out, %first, %second, %count;
  ld.param.u64 %data, [p_data];
  ld.param.u64 %words, [p_words];
  ld.param.u64 %low, [p_low];
  ld.param.u64 %high, [p_high];
  ld.param.u64 %out, [p_out];
  cvta.to.global.u64 %data, %data;
  cvta.to.global.u64 %out, %out;
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %block, %size, %i;
  mul.wide.u32 %stride, %blocks, %size;
  mov.u64 %count, 0;
next:
  setp.ge.u64 %done, %i, %words;
  @%done bra end;
  shl.b64 %at, %i, 4;
  add.u64 %at, %at, %data;
  ld.global.v2.u64 {%first, %second}, [%at];
  setp.ne.u64 %differs, %first, %low;
  @%differs add.u64 %count, %count, 1;
  setp.ne.u64 %differs, %second, %high;
  @%differs add.u64 %count, %count, 1;
  add.u64 %i, %i, %stride;
  bra next;
end:
  setp.ne.u64 %differs, %count, 0;
  @%differs red.global.add.u64 [%out], %count;
  ret;
}
)ptx";

}  // namespace simgpu::kernels
