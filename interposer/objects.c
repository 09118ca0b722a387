/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"

#include <elf.h>

typedef int (*visitor)(const struct sublet_object*, void*);

struct walk {
  visitor visit;
  void* data;
  int place; /* of the object in the list of the loader */
};

/* glibc turns the addresses of this table into those of the process; other loaders leave them as in the file. */
static const void* address_of(uintptr_t base, ElfW(Addr) value) {
  return (const void*)(value >= base ? value : base + value);
}

/* The older table says how many symbols there are; in the newer one, the end of the last chain is the last symbol. */
static uint32_t count_symbols(const uint32_t* old_table, const uint32_t* new_table) {
  if (old_table != NULL) return old_table[1];
  if (new_table == NULL) return 0;
  const uint32_t buckets = new_table[0], first = new_table[1], words = new_table[2];
  const uint32_t* bucket = new_table + 4 + words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; ++i)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) ++last;
  return last + 1;
}

static int has_symbols(const struct dl_phdr_info* info, struct sublet_object* object) {
  const ElfW(Dyn)* entry = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      entry = (const ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  if (entry == NULL) return 0;
  const uint32_t *old_table = NULL, *new_table = NULL;
  ElfW(Xword) soname = 0;
  const uintptr_t base = info->dlpi_addr;
  for (; entry->d_tag != DT_NULL; ++entry) {
    const void* address = address_of(base, entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) object->symbols = address;
    if (entry->d_tag == DT_STRTAB) object->strings = address;
    if (entry->d_tag == DT_VERSYM) object->versions = address;
    if (entry->d_tag == DT_HASH) old_table = address;
    if (entry->d_tag == DT_GNU_HASH) new_table = address;
    if (entry->d_tag == DT_SONAME) soname = entry->d_un.d_val;
  }
  if (object->symbols == NULL || object->strings == NULL) return 0;
  object->count = count_symbols(old_table, new_table);
  object->soname = soname != 0 ? object->strings + soname : "";
  return 1;
}

static int on_object(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct walk* walk = data;
  struct sublet_object object = {0};
  object.place = walk->place++;
  object.base = info->dlpi_addr;
  object.path = info->dlpi_name != NULL ? info->dlpi_name : "";
  /* The kernel's own object is in the list too, and its tables keep the addresses of the file. */
  if (sublet_begins(object.path, "linux-vdso") || !has_symbols(info, &object)) return 0;
  return walk->visit(&object, walk->data);
}

int sublet_objects(visitor visit, void* data) {
  struct walk walk = {visit, data, 0};
  return dl_iterate_phdr(on_object, &walk);
}

struct search {
  uintptr_t address;
  struct sublet_object* out;
  int place;
};

static int on_address(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct search* search = data;
  const int place = search->place++;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (part->p_type != PT_LOAD || search->address < begin || search->address - begin >= part->p_memsz) continue;
    search->out->base = info->dlpi_addr;
    search->out->path = info->dlpi_name != NULL ? info->dlpi_name : "";
    search->out->place = place;
    search->out->soname = "";
    (void)has_symbols(info, search->out);
    return 1;
  }
  return 0;
}

int sublet_object_at(const void* address, struct sublet_object* out) {
  *out = (struct sublet_object){0};
  struct search search = {(uintptr_t)address, out, 0};
  return dl_iterate_phdr(on_address, &search);
}

void* sublet_function(const struct sublet_object* object, const ElfW(Sym) * symbol) {
  const unsigned type = ELF64_ST_TYPE(symbol->st_info);
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0) return NULL;
  if (ELF64_ST_BIND(symbol->st_info) == STB_LOCAL) return NULL;
  void* address = (void*)(object->base + symbol->st_value);
  if (type == STT_FUNC || type == STT_NOTYPE) return address;
  return type == STT_GNU_IFUNC ? ((void* (*)(void))address)() : NULL;
}

/* --- the kernel's own object */

static int on_kernel_object(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct sublet_object object = {0};
  object.base = info->dlpi_addr;
  if (info->dlpi_name == NULL || !sublet_begins(info->dlpi_name, "linux-vdso")) return 0;
  for (uint32_t i = has_symbols(info, &object); i != 0 && i < object.count; ++i)
    if (sublet_same(object.strings + object.symbols[i].st_name, "__vdso_clock_gettime"))
      *(void**)data = sublet_function(&object, &object.symbols[i]);
  return 1;
}

void* sublet_kernel_clock(void) {
  void* function = NULL;
  dl_iterate_phdr(on_kernel_object, &function);
  return function;
}

/* --- the C library's loader functions */

struct wanted {
  const char* name;
  const char* soname; /* NULL: any object but ours */
  void* found;
};

static int look_for(const struct sublet_object* object, void* data) {
  struct wanted* wanted = data;
  if (wanted->soname != NULL && !sublet_begins(object->soname, wanted->soname)) return 0;
  if (sublet_begins(object->soname, "libsublet-cuda.so")) return 0;
  for (uint32_t i = 1; i < object->count; ++i) {
    if (!sublet_same(object->strings + object->symbols[i].st_name, wanted->name)) continue;
    void* function = sublet_function(object, &object->symbols[i]);
    if (function == NULL) continue;
    wanted->found = function;
    /* The highest bit marks a version for old programs only. */
    if (object->versions == NULL || (object->versions[i] & 0x8000) == 0) return 1;
  }
  return wanted->found != NULL;
}

/* Since glibc 2.34 the functions are in libc.so.6, and before in libdl.so.2. */
static void* of_loader(void** known, const char* name) {
  void* function = __atomic_load_n(known, __ATOMIC_ACQUIRE);
  static const char* const homes[] = {"libc.so", "libdl.so", NULL};
  for (int i = 0; function == NULL && i < 3; ++i) {
    struct wanted wanted = {name, homes[i], NULL};
    sublet_objects(look_for, &wanted);
    function = wanted.found;
  }
  __atomic_store_n(known, function, __ATOMIC_RELEASE);
  return function;
}

void* sublet_real_dlsym(void) {
  static void* known;
  return of_loader(&known, "dlsym");
}

void* sublet_real_dlvsym(void) {
  static void* known;
  return of_loader(&known, "dlvsym");
}

void* sublet_real_dlopen(void) {
  static void* known;
  return of_loader(&known, "dlopen");
}

void* sublet_real_dlclose(void) {
  static void* known;
  return of_loader(&known, "dlclose");
}
