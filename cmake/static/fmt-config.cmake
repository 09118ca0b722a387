# SPDX-License-Identifier: Apache-2.0
# Debian and Ubuntu ship fmt as a shared library only. In a static build, fmt::fmt means its header-only form; fmt_DIR
# leads find_package(fmt), ours and other packages', to this file. g++ 12 inlines so much of fmt that it warns of an
# overflow which an earlier bound excludes.
if(NOT TARGET fmt::fmt)
  add_library(fmt::fmt INTERFACE IMPORTED GLOBAL)
  set_target_properties(fmt::fmt PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${SUBLET_FMT_INCLUDE} INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1
    INTERFACE_COMPILE_OPTIONS $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow>)
  add_library(fmt::fmt-header-only ALIAS fmt::fmt)
endif()
