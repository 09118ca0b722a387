/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ups by dlsym and dlvsym. A look-up of another name leaves to the C library by a jump, so that the C library sees
 * the true caller. For a name of the driver, the answer is what the program would find without us, with the hook in
 * place of the driver's function: a function that the driver lacks stays absent. */
#include "internal.h"

#include <dlfcn.h>

typedef void* (*dlsym_function)(void*, const char*);
typedef void* (*dlvsym_function)(void*, const char*, const char*);

/* Returned in two registers, for hooks.S. */
struct answer {
  void* value; /* the result; unless answered, the function to jump to */
  uint64_t answered;
};

struct question {
  const char* name;
  const char* version; /* NULL: dlsym */
  int hook;            /* of the name */
  const void* caller;
};

struct answer sublet_lookup(void* handle, const char* name, const char* version, const void* caller);

/* The C library takes the place from which it is called for RTLD_DEFAULT and RTLD_NEXT: here, our own. */
static __attribute__((noinline)) void* ask(const struct question* question, void* handle) {
  void* found;
  if (question->version != NULL)
    found = ((dlvsym_function)sublet_real_dlvsym())(handle, question->name, question->version);
  else found = ((dlsym_function)sublet_real_dlsym())(handle, question->name);
  __asm__ volatile("" : "+r"(found)); /* no jump, which would make our caller the caller */
  return found;
}

static int is_ours(const struct question* question, const void* found) { return found == sublet_hooks[question->hook]; }

static int is_of_caller(const struct question* question, const void* found) {
  struct sublet_object caller, other;
  return sublet_object_at(question->caller, &caller) && sublet_object_at(found, &other) && caller.base == other.base;
}

/* The answer that the caller sees in itself and in the libraries that it was loaded with. */
static void* ask_in_caller(const struct question* question) {
  struct sublet_object caller;
  void* (*open)(const char*, int) = (void* (*)(const char*, int))sublet_real_dlopen();
  int (*close)(void*) = (int (*)(void*))sublet_real_dlclose();
  if (open == NULL || close == NULL || !sublet_object_at(question->caller, &caller) || caller.place == 0) return NULL;
  void* handle = open(caller.path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == NULL) return NULL;
  void* found = ask(question, handle);
  close(handle);
  return found;
}

/* Sets the text of dlerror, which a success since the look-up has cleared: the C library has no function of the driver.
 * The handle is kept, because giving it back would clear the text again. */
static void* refuse(const struct question* question) {
  static void* libc;
  void* (*open)(const char*, int) = (void* (*)(const char*, int))sublet_real_dlopen();
  void* handle = __atomic_load_n(&libc, __ATOMIC_ACQUIRE);
  if (handle == NULL && open != NULL) handle = open("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  __atomic_store_n(&libc, handle, __ATOMIC_RELEASE);
  if (handle != NULL) (void)ask(question, handle);
  return NULL;
}

/* The first object of the global order that has the name, ours not counted. */
static void* find_default(const struct question* question) {
  void* found = ask(question, RTLD_DEFAULT);
  if (found != NULL && !is_ours(question, found)) return found;
  found = ask(question, RTLD_NEXT);
  if (found != NULL && !is_ours(question, found)) return found;
  found = ask_in_caller(question);
  return found == NULL || is_ours(question, found) ? refuse(question) : found;
}

/* The object after the caller. We stand last among the preloaded libraries, so that none is left out after us. */
static void* find_next(const struct question* question) {
  struct sublet_object caller;
  const int of_program = sublet_object_at(question->caller, &caller) && caller.place == 0;
  void* found = ask(question, of_program ? RTLD_DEFAULT : RTLD_NEXT);
  if (found != NULL && (is_ours(question, found) || is_of_caller(question, found))) found = ask(question, RTLD_NEXT);
  if (found != NULL && !is_ours(question, found) && !is_of_caller(question, found)) return found;
  found = ask_in_caller(question);
  if (found == NULL || is_ours(question, found) || is_of_caller(question, found)) return refuse(question);
  return found;
}

static void* find(const struct question* question, void* handle) {
  if (handle == RTLD_DEFAULT) return find_default(question);
  if (handle == RTLD_NEXT) return find_next(question);
  void* found = ask(question, handle);
  return found != NULL && is_ours(question, found) ? find_default(question) : found;
}

/* A function of this name of an object behind us. A variable would be no function, and an object before us has called
 * us and would be called again. */
static int is_stub(const struct question* question, const void* found) {
  struct sublet_object object, ours;
  if (found == NULL || !sublet_object_at(found, &object) || !sublet_object_at(sublet_hooks, &ours)) return 0;
  if (object.place <= ours.place || object.symbols == NULL || sublet_is_driver(&object)) return 0;
  for (uint32_t i = 1; i < object.count; ++i) {
    const ElfW(Sym)* symbol = &object.symbols[i];
    const unsigned type = ELF64_ST_TYPE(symbol->st_info);
    if (type != STT_FUNC && type != STT_GNU_IFUNC) continue;
    if (sublet_same(object.strings + symbol->st_name, question->name) && symbol->st_shndx != SHN_UNDEF) return 1;
  }
  return 0;
}

void* sublet_stub(int hook, const void* caller) {
  if (sublet_real_dlsym() == NULL) return NULL;
  const struct question question = {sublet_name(hook), NULL, hook, caller};
  void* found = ask(&question, RTLD_NEXT);
  if (!is_stub(&question, found)) found = ask_in_caller(&question);
  if (is_stub(&question, found)) return found;
  return sublet_real(hook); /* another thread may have loaded the driver meanwhile */
}

/* NVML is asked by its handle. Elsewhere our own function may be found, although NVML is not there. */
static void* find_of_nvml(const struct question* question, void* handle) {
  void* found = ask(question, handle);
  struct sublet_object object, ours;
  if (found == NULL || !sublet_object_at(found, &object) || !sublet_object_at(sublet_hooks, &ours)) return found;
  if (object.base != ours.base && !sublet_begins(object.soname, "libnvidia-ml.so")) return found;
  void* hook = sublet_nvml_hook(question->name);
  return hook != NULL ? hook : refuse(question);
}

/* A program that asks for dlsym itself gets ours, unless its own place decides which one it gets. */
static void* own_lookup(const char* name, void* handle) {
  if (name[0] != 'd' || handle == RTLD_DEFAULT || handle == RTLD_NEXT) return NULL;
  if (sublet_same(name, "dlsym")) return (void*)dlsym;
  return sublet_same(name, "dlvsym") ? (void*)dlvsym : NULL;
}

struct answer sublet_lookup(void* handle, const char* name, const char* version, const void* caller) {
  void* real = version != NULL ? sublet_real_dlvsym() : sublet_real_dlsym();
  const struct answer pass = {real, real == NULL};
  if (real == NULL || name == NULL) return pass;
  struct question question = {name, version, -1, caller};
  void* own = own_lookup(name, handle);
  if (own != NULL) {
    void* found = ask(&question, handle);
    return (struct answer){found == sublet_real_dlsym() || found == sublet_real_dlvsym() ? own : found, 1};
  }
  if (name[0] == 'n' && sublet_is_of_nvml(name)) return (struct answer){find_of_nvml(&question, handle), 1};
  if (name[0] != 'c' || name[1] != 'u') return pass;
  question.hook = sublet_hook_of(name);
  if (question.hook < 0) return pass;
  return (struct answer){sublet_hooked(find(&question, handle)), 1};
}
