#!/usr/bin/env bash
# The first process of a machine of namespaces.py: it sets the machine up, and is its init.
#
#   machine_init.sh FOLDER NAME
#
# FOLDER has etc/ with files of /etc, which all machines share, and a folder for each machine with
# its home, tmp and, if an sshd shall run there, sshd_config. It is in namespaces of its own already.
# Its standard input is closed to end it, and with it all processes of the machine.
set -euo pipefail
folder=$1 name=$2

hostname "$name"
taskset -cp 0,1 $$ >/dev/null # the number of CPUs is shown, too
ip link set lo up
echo 4200 >/proc/sys/kernel/ns_last_pid # numbers of processes look like those of a machine in use
for file in passwd hosts nsswitch.conf; do
  mount --bind "$folder/etc/$file" "/etc/$file"
done

# What /sys says about the network is that of the namespace in which it was mounted.
mkdir "$folder/$name/sys"
mount -t sysfs sysfs "$folder/$name/sys"
for kind in class/net devices/virtual/net; do
  mount --bind "$folder/$name/sys/$kind" "/sys/$kind"
done

# /home/ann is the user's on each machine. What is below /home otherwise, such as a clone, stays.
mkdir "$folder/$name/old"
mount --rbind /home "$folder/$name/old"
mount -t tmpfs tmpfs /home
for old in "$folder/$name/old"/*; do
  [ -d "$old" ] || continue
  mkdir -p "/home/${old##*/}"
  mount --rbind "$old" "/home/${old##*/}"
done
mkdir -p /home/ann
mount --bind "$folder/$name/home" /home/ann
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd /run/user
mkdir -m 700 /run/user/0

if [ -e "$folder/$name/sshd_config" ]; then
  PATH=$PATH:/usr/sbin
  mount --bind "$folder/$name/sshd_config" /etc/ssh/sshd_config
  "$(command -v sshd)" -E "$folder/$name/sshd.log"
fi
echo ready
# bash reaps processes whose parents have ended, as every init must.
while read -r _; do :; done
