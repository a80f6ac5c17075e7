# A branch on which somebody asks for xgboost, in a requirements file and in the matrix.
rm -r .git
git init -q -b main .
sed -i '/xgboost/d; /acme/d' requirements.in
git add buildmatrix.toml locks requirements requirements.in
git commit -q -m 'What is on main'
git update-ref refs/remotes/origin/main HEAD
echo 'xgboost==3.4.1' >>requirements.in
echo xgboost >requirements/cpu.in
buildmatrix -q lock || true
git commit -q -a -m 'Boosting'
