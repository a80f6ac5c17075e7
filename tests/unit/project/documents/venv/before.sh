# What pip would install of requirements.in: names and links of the real wheels, with little in them.
site=venv/lib/python3.11/site-packages
mkdir -p $site/torch/lib $site/torchvision $site/torchvision.libs $site/nvidia/cu13/lib

installed() { # NAME VERSION REQUIRES FILE...
  info=$site/${1//-/_}-$2.dist-info
  mkdir -p "$info"
  printf 'Metadata-Version: 2.4\nName: %s\nVersion: %s\n' "$1" "$2" >"$info/METADATA"
  for line in $3; do echo "Requires-Dist: $line" >>"$info/METADATA"; done
  for file in "${@:4}" "${info##*/}/METADATA"; do echo "$file,,"; done >"$info/RECORD"
}

calls() { for name in $2; do echo "void $name(void); void $1_$name(void) { $name(); }"; done; }

linked() { # SOURCE LIBRARY OPTION...
  echo "$1" | gcc -shared -fPIC -nostdlib -Wl,--no-as-needed -x c - -x none -o "$site/$2" "${@:3}"
}

runtime='cudaDeviceSynchronize cudaDriverGetVersion cudaEventCreate cudaEventRecord cudaGetDeviceCount
 cudaGetErrorString cudaMalloc cudaStreamSynchronize'
defined=$(for name in $runtime; do echo "void $name(void) {}"; done)
copy=torchvision.libs/libcudart.3eda8113.so.13
linked "$defined" nvidia/cu13/lib/libcudart.so.13 -Wl,-soname,libcudart.so.13
linked "$defined" $copy -Wl,-soname,libcudart.3eda8113.so.13
rpath='-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cu13/lib'
real=$site/nvidia/cu13/lib/libcudart.so.13
linked "$(calls cpu 'cudaDeviceSynchronize cudaDriverGetVersion cudaGetDeviceCount')" \
  torch/lib/libtorch_cpu.so $real "$rpath"
linked "$(calls cuda "$runtime")" torch/lib/libtorch_cuda.so $real "$rpath"
linked '' torch/lib/libtorch_global_deps.so $real "$rpath"
linked "$(calls image 'cudaEventCreate cudaEventRecord cudaStreamSynchronize')" torchvision/image_stable.so \
  $site/$copy '-Wl,--enable-new-dtags,-rpath,$ORIGIN/../torchvision.libs'

mkdir -p $site/sentence_transformers
echo 'import torch' >$site/sentence_transformers/__init__.py
echo 'from ctypes import CDLL; CDLL("lib/libtorch_cpu.so")' >$site/torch/__init__.py
echo >$site/torchvision/__init__.py
installed sentence-transformers 6.2.0 'torch>=2.2' sentence_transformers/__init__.py
installed torch 2.15.0 cuda-toolkit==13.2.2 torch/__init__.py torch/lib/libtorch_{cpu,cuda,global_deps}.so
installed cuda-toolkit 13.2.2 nvidia-cuda-runtime==13.2.86
installed nvidia-cuda-runtime 13.2.86 '' nvidia/cu13/lib/libcudart.so.13
installed torchvision 0.29.2 torch==2.15.0 torchvision/{__init__.py,image_stable.so} $copy
