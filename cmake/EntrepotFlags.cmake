# Flags of all our targets. Warnings are errors only for developers, so that a compiler's new warning breaks no package
# build.
add_compile_options(-Wall -Wextra -Wpedantic -Wconversion)
if(ENTREPOT_WERROR)
  add_compile_options(-Werror)
endif()

if(ENTREPOT_SANITIZE)
  add_compile_options(-fsanitize=${ENTREPOT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${ENTREPOT_SANITIZE})
  if(ENTREPOT_SANITIZE MATCHES "thread")
    # GCC warns about every std::atomic_thread_fence under TSan, which does not support fences. Code to be checked by
    # TSan uses memory orders on the atomic operations themselves.
    add_compile_options(-Wno-tsan)
    add_compile_definitions(ENTREPOT_TSAN=1)
  endif()
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
link_libraries(Threads::Threads)

add_compile_definitions(ENTREPOT_VERSION="${PROJECT_VERSION}")
