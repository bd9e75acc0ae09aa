# An overlay port that takes the checkout it is in: vcpkg install tensornet --overlay-ports=CHECKOUT/tools/vcpkg
# In a registry vcpkg_from_github gives SOURCE_PATH instead.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

set(VCPKG_BUILD_TYPE release) # sources only

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}/tools/cmake"
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup()
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
